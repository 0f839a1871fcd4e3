use thiserror::Error;

/// Bytes from outside that do not say what the specification allows there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum DecodeError {
    /// There are fewer bytes than the structure has.
    #[error("{structure} needs {needed} bytes, got {got}")]
    Short {
        /// Name of the structure, as in the specification.
        structure: &'static str,
        /// Its size in bytes.
        needed: usize,
        /// The bytes there were.
        got: usize,
    },
    /// A field holds a value that the specification does not allow there.
    #[error("{field} must not be {value:#x}")]
    Field {
        /// Name of the field, as in the specification.
        field: &'static str,
        /// What it holds.
        value: u64,
    },
}
