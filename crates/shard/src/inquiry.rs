//! Questions of administrators that every shard answers for its part.

use crate::control::{ControlRequest, ControlResponse, Status};
use diecut_spec::latency::LatencyReport;

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Inquiry {
    /// What exists.
    Status,
    /// Where the time of slow commands went.
    Latency,
}

impl Inquiry {
    /// The question that a request is, if it is one.
    pub fn of(request: &ControlRequest) -> Option<Inquiry> {
        match request {
            ControlRequest::Status => Some(Inquiry::Status),
            ControlRequest::Latency => Some(Inquiry::Latency),
            _ => None,
        }
    }
}

/// A shard's part of an answer, or several together.
#[derive(Debug)]
pub(crate) enum Findings {
    Status(Box<Status>),
    Latency(Box<LatencyReport>),
}

impl Findings {
    /// Adds another shard's part.
    ///
    /// # Panics
    /// If that answers another question.
    pub fn merge(&mut self, other: Findings) {
        match (self, other) {
            (Findings::Status(own), Findings::Status(other)) => own.merge(*other),
            (Findings::Latency(own), Findings::Latency(other)) => own.merge(*other),
            (own, other) => unreachable!("I-S14: {own:?} and {other:?} answer one question"),
        }
    }

    /// As an administrator gets it.
    pub fn into_response(self) -> ControlResponse {
        match self {
            Findings::Status(status) => ControlResponse::Status(status),
            Findings::Latency(report) => ControlResponse::Latency(report),
        }
    }
}
