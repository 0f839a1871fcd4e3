//! A recorded run once more, freely: commands and requests come when they came, but the shard steps by its own deadlines,
//! and there are no hosts. What it does need not be the same to the last erase; it must be the same within a percent.

use crate::replay::{Input, ReplayError};
use diecut_devices::{Backing, Device};
use diecut_media::Media;
use diecut_namespace::contract::{
    CommandToken, NamespaceCommand, NamespaceOperation, PlacementTarget, SourceId,
};
use diecut_recording::{Start, Summary};
use diecut_shard::control::ControlRequest;
use diecut_shard::drive::{Action, Drive, Event, OperationOutline};
use diecut_shard::{DOOR_SOURCE_BIT, Shard};
use diecut_units::{BufferPool, Span, Time};

/// What a free re-run came to.
#[derive(Clone, Debug)]
pub struct Rerun {
    /// Commands given.
    pub commands: u64,
    /// Commands that were answered.
    pub answered: u64,
    /// Answers that were errors.
    pub errors: u64,
    /// What it had done at the end.
    pub summary: Summary,
}

struct Free {
    shard: Shard<Device>,
    now: Time,
    actions: Vec<Action>,
    pool: BufferPool,
    rerun: Rerun,
}

impl Free {
    fn work(&mut self) {
        self.shard.work(self.now, &mut self.actions);
        // Time passes, so that a shard that is never done is left.
        self.now += Span(1);
        self.actions.clear();
        let mut completions = Vec::new();
        self.shard.take_completions(&mut completions);
        for completion in completions {
            self.rerun.answered += 1;
            self.rerun.errors += u64::from(completion.result.is_err());
        }
    }

    fn give(&mut self, input: Input) {
        match input {
            // It reads figures and changes nothing.
            Input::Control(_, _, request)
                if matches!(*request, ControlRequest::Status | ControlRequest::Latency) => {}
            Input::Control(_, token, request) => {
                let event = Event::Control { token, request };
                self.shard.handle(event, self.now, &mut self.actions);
            }
            Input::Application(_, application) => {
                let event = Event::Blocks(application.event(&mut self.pool));
                self.shard.handle(event, self.now, &mut self.actions);
            }
            Input::Command(_, outline) => {
                self.rerun.commands += 1;
                let size = self.shard.media().capabilities().content_mode.bytes_per_iu();
                let mut buffer = |count: u32| {
                    let mut buffer = self.pool.take(count as usize * size);
                    // Anything but zeros, which tags hold apart.
                    buffer.fill(7);
                    buffer
                };
                let operation = match outline.operation {
                    OperationOutline::Read(range) => {
                        NamespaceOperation::Read { range, destination: buffer(range.lba_count) }
                    }
                    OperationOutline::Write(range, force_unit_access) => {
                        let data = buffer(range.lba_count).freeze();
                        NamespaceOperation::Write {
                            range,
                            data,
                            force_unit_access,
                            placement: PlacementTarget::default(),
                        }
                    }
                    OperationOutline::Flush => NamespaceOperation::Flush,
                    OperationOutline::Deallocate(ranges) => {
                        NamespaceOperation::Deallocate { ranges: ranges.into() }
                    }
                    OperationOutline::WriteZeroes(range, may_deallocate, force_unit_access) => {
                        NamespaceOperation::WriteZeroes { range, may_deallocate, force_unit_access }
                    }
                    OperationOutline::Compare(range) => {
                        let data = buffer(range.lba_count).freeze();
                        NamespaceOperation::Compare { range, data }
                    }
                    OperationOutline::Purge => NamespaceOperation::Purge,
                    OperationOutline::Verify(range) => NamespaceOperation::Verify { range },
                    OperationOutline::Zone | OperationOutline::Chunk => {
                        unreachable!("no experiment has zones or chunks")
                    }
                    OperationOutline::Copy(copy) => NamespaceOperation::Copy(Box::new(copy)),
                    OperationOutline::WriteUncorrectable(range) => {
                        NamespaceOperation::WriteUncorrectable { range }
                    }
                };
                self.shard.submit(NamespaceCommand {
                    token: CommandToken(self.rerun.commands),
                    namespace: outline.namespace,
                    source: SourceId(outline.source.0 | DOOR_SOURCE_BIT),
                    arrived: outline.arrived,
                    operation,
                });
            }
        }
    }
}

/// Gives `inputs`, in the order of their times, to a new shard, which takes no time for its own work, and lets it run until
/// `end`. Content lies in `backing`, in memory or a file: as tags, chunks would have other lengths than in the run.
///
/// # Errors
/// If it cannot be set up.
pub fn rerun(start: &Start, inputs: Vec<Input>, end: Time, backing: Backing) -> Result<Rerun, ReplayError> {
    let device = start.device(backing)?;
    let shard = Shard::new(device, start.shard_config()?, start.started());
    let rerun = Rerun { commands: 0, answered: 0, errors: 0, summary: Summary::default() };
    let mut free = Free { shard, now: start.started(), actions: Vec::new(), pool: BufferPool::new(), rerun };
    let mut inputs = inputs.into_iter().peekable();
    while free.now <= end {
        let mut was_given = false;
        while let Some(input) = inputs.next_if(|input| input.time() <= free.now) {
            free.give(input);
            was_given = true;
        }
        if was_given || free.shard.deadline() <= free.now {
            free.work();
        } else {
            free.now = free.shard.deadline().min(inputs.peek().map_or(Time::NEVER, Input::time));
        }
    }
    free.rerun.summary = Summary::of(&free.shard);
    Ok(free.rerun)
}

/// A figure of the recorded run and of the re-run.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Comparison {
    /// Which figure.
    pub figure: String,
    /// In the recorded run.
    pub recorded: f64,
    /// In the re-run.
    pub rerun: f64,
    /// Whether they are within one percent, or one count, of each other.
    pub is_close: bool,
}

/// Compares erases and write amplification, of the device and of each vSSD.
pub fn compare(recorded: &Summary, rerun: &Summary) -> Vec<Comparison> {
    let mut comparisons = Vec::new();
    let mut add = |figure: String, recorded: f64, rerun: f64, least: f64| {
        let is_close = (recorded - rerun).abs() <= (recorded * 0.01).max(least);
        comparisons.push(Comparison { figure, recorded, rerun, is_close });
    };
    add("erases of the device".to_owned(), recorded.erases() as f64, rerun.erases() as f64, 1.0);
    for vssd in &recorded.vssds {
        let name = &vssd.name;
        let none = diecut_recording::VssdSummary::default();
        let other = rerun.vssds.iter().find(|other| other.name == *name).unwrap_or(&none);
        add(format!("erases of vSSD {name}"), vssd.erases as f64, other.erases as f64, 1.0);
        let waf = |vssd: &diecut_recording::VssdSummary| vssd.waf().unwrap_or(0.0);
        add(format!("WAF of vSSD {name}"), waf(vssd), waf(other), 0.0);
    }
    comparisons
}
