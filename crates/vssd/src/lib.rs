//! Virtual SSDs: tenants own whole channels, dies or soft-planes, and hold logical erase blocks on numbered
//! independent units. This room says which physical erase block that is, keeps tenants apart, levels wear
//! and arbitrates the dies.
//!
//! Place in the flow: under `log` and zoned namespaces, above `media`. Waist 2 is [`space`].

pub mod space;
