//! How far a host was told of something.

/// One kind of event: it is told once, then masked until the host reads its log page (Base 2.0 section 5.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Notice {
    #[default]
    Quiet,
    /// To be told with the next request.
    Pending,
    /// Told; the page was not read yet.
    Masked,
}

impl Notice {
    /// Whether it is to be told; it counts as told.
    pub(super) fn is_to_be_told(&mut self) -> bool {
        let is_pending = *self == Notice::Pending;
        if is_pending {
            *self = Notice::Masked;
        }
        is_pending
    }
}
