//! Requests for tenants.

use super::{Plan, differs, missing, refuse, sound};
use crate::control::{ControlError, ControlErrorKind, TenantSpec};
use crate::sanitize;
use crate::step::Step;
use diecut_catalog::State;

pub(super) fn create(spec: &TenantSpec, plan: &mut Plan) -> Result<(), ControlError> {
    sound(spec.check())?;
    match plan.next.tenants.get(&spec.name) {
        Some(existing) if existing == spec => Ok(()),
        Some(existing) => {
            let fields = |of: &TenantSpec| vec![("weight", of.weight.to_string())];
            differs("tenant", &spec.name, fields(existing), fields(spec))
        }
        None => {
            plan.next.tenants.insert(spec.name.clone(), spec.clone());
            plan.steps = vec![Step::Persist];
            Ok(())
        }
    }
}

pub(super) fn delete(state: &State, name: &str, plan: &mut Plan) -> Result<(), ControlError> {
    if plan.next.tenants.remove(name).is_none() {
        return missing("tenant", name);
    }
    let vssd = state.vssds.iter().find(|(_, vssd)| vssd.tenant == *name);
    let subsystem = state.subsystems.iter().find(|(_, subsystem)| subsystem.tenant == *name);
    if let Some(owned) = vssd
        .map(|(vssd, _)| format!("vSSD \"{vssd}\""))
        .or(subsystem.map(|(nqn, _)| format!("subsystem {nqn}")))
    {
        let message = format!("tenant \"{name}\" still owns {owned}; delete that first");
        return refuse(ControlErrorKind::InUse, message);
    }
    plan.steps = vec![Step::Persist];
    Ok(())
}

pub(super) fn set_weight(name: &str, weight: u32, plan: &mut Plan) -> Result<(), ControlError> {
    let Some(spec) = plan.next.tenants.get_mut(name) else { return missing("tenant", name) };
    if spec.weight != weight {
        spec.weight = weight;
        sound(spec.check_slips())?;
        plan.steps = vec![Step::Persist, Step::ApplyTenant { name: name.to_owned() }];
    }
    Ok(())
}

pub(super) fn move_to(name: &str, shard: u16, plan: &mut Plan) -> Result<(), ControlError> {
    if !plan.next.tenants.contains_key(name) {
        return missing("tenant", name);
    }
    // Tenants that share channels with it move, too; hosts would wait for all of the erases.
    plan.next.sanitizes.keys().try_for_each(|nqn| sanitize::is_over(&plan.next, nqn))?;
    plan.steps = vec![Step::MoveTenant { tenant: name.to_owned(), shard }];
    Ok(())
}
