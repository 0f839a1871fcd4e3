//! Namespaces: what a host sees and its rules, in words that know no transport. All doors speak
//! [`contract`], so a feature is written once.
//!
//! Place in the flow: under `target` and the other doors, above `volume`. Statistics and latency histograms
//! are kept here.

pub mod contract;
