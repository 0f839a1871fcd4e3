//! Volumes: the page maps from a tenant's LBA to a log address; thin, with durable deallocation.
//!
//! Place in the flow: under `namespace`, above `log`. What a namespace asks is [`contract`].

pub mod contract;
