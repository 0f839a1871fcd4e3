//! placeholder
pub mod generate;
pub mod oracle;
pub mod plan;
pub mod system;
pub mod tag;
