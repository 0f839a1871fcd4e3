//! Systems by name.

use crate::guard::Factory;
use crate::model::{Model, ModelBug};
use crate::plan::Plan;
use crate::stack::Stack;
use crate::system::System;

/// Names that [`factory`] knows.
pub const NAMES: &[&str] = &["model", "stack"];

/// What makes systems of this name.
pub fn factory(name: &str) -> Option<Box<dyn Factory + Send>> {
    match name {
        "model" => Some(Box::new(|plan: &Plan| {
            Ok(Box::new(Model::new(plan, ModelBug::planted())) as Box<dyn System>)
        })),
        "stack" => Some(Box::new(|plan: &Plan| Ok(Box::new(Stack::new(plan)?) as Box<dyn System>))),
        _ => None,
    }
}

/// What a set of seeds of a system has in common unless told otherwise.
pub fn shape(name: &str) -> crate::generate::Shape {
    match name {
        "stack" => crate::stack::shape(),
        _ => crate::generate::Shape::default(),
    }
}
