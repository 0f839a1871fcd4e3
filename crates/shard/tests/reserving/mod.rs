//! An oracle of reservations, and the words that hosts say to ask for them.

pub mod table;
pub mod wire;
pub mod worlds;
