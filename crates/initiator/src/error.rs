use diecut_nvme::tcp::{FatalError, PduError};
use diecut_nvme::{CompletionEntry, Status};
use thiserror::Error;

/// Why a stream is of no use any more. Every one of them ends it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum HostError {
    /// The controller sent what is no PDU for a host, or one at the wrong time.
    #[error("the controller broke the NVMe/TCP protocol: {0}")]
    Protocol(#[from] PduError),
    /// The controller says that we did.
    #[error("the controller ended the connection: {fatal:?}, information {information:#x}")]
    Terminated {
        /// FES.
        fatal: FatalError,
        /// FEI.
        information: u32,
    },
    /// Connect was refused.
    #[error("{}", refusal(*.status, *.parameter))]
    ConnectRefused {
        /// Why.
        status: Status,
        /// Dword 0 of the answer: offset of the wrong field, bit 16 set if it is in the data.
        parameter: u32,
    },
    /// A command of the bring-up failed.
    #[error("{what} failed with {status}; the controller cannot be used")]
    BringUp {
        /// Which command.
        what: &'static str,
        /// Its status.
        status: Status,
    },
    /// The controller did not become ready in the time it names in CAP.TO.
    #[error(
        "the controller was not ready within {0} ms, the time it promises; look at its log, or try again"
    )]
    NotReady(u64),
}

impl HostError {
    pub(crate) fn refused(entry: &CompletionEntry) -> HostError {
        HostError::ConnectRefused { status: entry.status(), parameter: entry.dw0.get() }
    }
}

/// Offsets as Connect's answer reports them (Base 2.0 figure 384): bit 16 = in the data.
fn refusal(status: Status, parameter: u32) -> String {
    let in_data = parameter & (1 << 16) != 0;
    let hint = if status.same_code(Status::CONNECT_INVALID_HOST) {
        "this host may not use the subsystem; allow its NQN there (`diecut host allow`)".to_owned()
    } else if status.same_code(Status::CONNECT_CONTROLLER_BUSY) {
        "all controllers are taken, or an older connection of this host is still being cleared; try again"
            .to_owned()
    } else if status.same_code(Status::CONNECT_INVALID_PARAMETERS) {
        match (in_data, parameter & 0xFFFF) {
            (true, 256) => {
                "the server has no subsystem of this NQN; `diecut subsystem list` shows its names".to_owned()
            }
            (true, 512) => "the server does not take this host NQN".to_owned(),
            (true, 16) => "the controller is gone; connect its admin queue again".to_owned(),
            (false, 44) => "the queue is larger than the server allows; use a smaller depth".to_owned(),
            (false, 42) => "the server has no queue of this number; use fewer jobs".to_owned(),
            (true, offset) => format!("the server does not take byte {offset} of the Connect data"),
            (false, offset) => format!("the server does not take byte {offset} of the Connect command"),
        }
    } else {
        "see the server's log".to_owned()
    };
    format!("Connect was refused with {status}: {hint}")
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn refusals_say_what_to_do() {
        let unknown =
            HostError::ConnectRefused { status: Status::CONNECT_INVALID_PARAMETERS, parameter: 0x1_0100 };
        assert!(unknown.to_string().contains("no subsystem of this NQN"), "{unknown}");
        let foreign = HostError::ConnectRefused { status: Status::CONNECT_INVALID_HOST, parameter: 0x1_0200 };
        assert!(foreign.to_string().contains("diecut host allow"), "{foreign}");
    }
}
