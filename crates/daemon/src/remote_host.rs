//! Who this server, or this command, is to targets.

use crate::error::{ServeError, file_error};
use crate::places;
use crate::random::random_uuid;
use diecut_api::setup::Setup;
use std::io;
use uuid::Uuid;

/// This server, or this command, as a host of targets.
#[derive(Clone, Copy, Debug)]
pub struct RemoteHost(Uuid);

impl RemoteHost {
    /// A host that was not there before.
    ///
    /// # Errors
    /// If there are no random numbers.
    pub fn new() -> Result<RemoteHost, ServeError> {
        Ok(RemoteHost(Uuid::from_bytes(random_uuid()?)))
    }

    /// That of a data folder, which is made with the first device of this kind.
    ///
    /// # Errors
    /// Names the file that says which it is.
    pub fn of_folder(setup: &Setup) -> Result<RemoteHost, ServeError> {
        let path = places::remote_host(setup);
        match std::fs::read_to_string(&path) {
            Ok(text) => text.trim().parse().map(RemoteHost).map_err(|_| {
                ServeError::Setup(format!(
                    "{} does not hold the UUID that this server goes by at targets; put the file back, or remove it and free the namespace with \
                     `diecut device release`",
                    path.display()
                ))
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let host = RemoteHost::new()?;
                std::fs::write(&path, format!("{}\n", host.0)).map_err(file_error(&path, "cannot be made"))?;
                Ok(host)
            }
            Err(error) => Err(file_error(&path, "cannot be read")(error)),
        }
    }

    /// The upper half of its keys.
    pub(crate) fn server(&self) -> u32 {
        u32::from_be_bytes([0, 1, 2, 3].map(|at| self.0.as_bytes()[at])).max(1)
    }

    /// What targets know it by, if nothing is said.
    pub(crate) fn nqn(&self) -> String {
        format!("nqn.2014-08.org.nvmexpress:uuid:{}", self.0)
    }
}
