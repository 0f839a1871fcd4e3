//! How the control thread asks the shards: one request, one answer, later.

use diecut_shard::control::{ControlRequest, ControlResponse};
use std::future::Future;
use std::pin::Pin;

/// A request that was handed to a shard and is not answered yet.
pub type Answer = Pin<Box<dyn Future<Output = Result<ControlResponse, Gone>> + Send>>;

/// The shards stopped before they answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the server is going away")]
pub struct Gone;

/// The way from the control thread to the shards.
pub trait ControlPort: Send + Sync + 'static {
    /// Hands a request over; the answer comes when it is durable, or refused.
    fn request(&self, request: ControlRequest) -> Answer;
}
