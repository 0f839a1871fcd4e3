//! Requests for QoS sets.

use super::{Plan, differs, missing, refuse, sound};
use crate::admission::{DeviceShaper, TokenUnit};
use crate::control::{ControlError, ControlErrorKind, QosSetChange, QosSetSpec};
use crate::notice::Notice;
use crate::step::Step;
use diecut_catalog::State;
use diecut_spec::{Amount, Size};
use diecut_units::Shown;

const STEPS: [Step; 2] = [Step::Persist, Step::ApplyQosSets];

/// `device` is what all shards have together.
pub(super) fn create(
    spec: &QosSetSpec,
    device: Option<DeviceShaper>,
    plan: &mut Plan,
) -> Result<(), ControlError> {
    sound(spec.check())?;
    if let Some(existing) = plan.next.qos_sets.get(&spec.name) {
        if existing.fields() != spec.fields() {
            return differs("QoS set", &spec.name, existing.fields(), spec.fields());
        }
        return Ok(());
    }
    put(spec.clone(), device, plan)
}

pub(super) fn change(
    name: &str,
    change: &QosSetChange,
    device: Option<DeviceShaper>,
    plan: &mut Plan,
) -> Result<(), ControlError> {
    let Some(before) = plan.next.qos_sets.get(name) else { return no_such_set(name) };
    let next = change.clone().over(before.clone());
    if next == *before {
        return Ok(());
    }
    sound(next.check_slips())?;
    // Where more is committed than there is, a change that asks for no more is a step in the right direction.
    let asks_for_more = !next.rate.is_like(before.rate) || next.rate.units() > before.rate.units();
    put(next, device.filter(|_| asks_for_more), plan)
}

pub(super) fn delete(name: &str, plan: &mut Plan) -> Result<(), ControlError> {
    if plan.next.qos_sets.remove(name).is_none() {
        return no_such_set(name);
    }
    plan.steps = STEPS.to_vec();
    Ok(())
}

fn no_such_set(name: &str) -> Result<(), ControlError> {
    let message = format!("there is no QoS set \"{}\"; `diecut qos list` shows what there is", Shown(name));
    refuse(ControlErrorKind::NotFound, message)
}

/// Writes a set down, if its members are and the device can give what is committed.
fn put(spec: QosSetSpec, device: Option<DeviceShaper>, plan: &mut Plan) -> Result<(), ControlError> {
    let state = &mut plan.next;
    has_members(state, &spec)?;
    if let Some(device) = device {
        fits(state, &spec, device)?;
    }
    state.qos_sets.insert(spec.name.clone(), spec);
    plan.steps = STEPS.to_vec();
    Ok(())
}

/// Whether all members exist, and none is in two sets.
fn has_members(state: &State, spec: &QosSetSpec) -> Result<(), ControlError> {
    let name = &spec.name;
    if spec.volumes.is_empty() && spec.vssds.is_empty() {
        let message = format!("QoS set \"{name}\" has no members; name volumes or vSSDs");
        return refuse(ControlErrorKind::Invalid, message);
    }
    for volume in &spec.volumes {
        let Some(record) = state.volumes.get(volume) else {
            return missing("volume", volume).map_err(|error| ControlError {
                message: format!("QoS set \"{name}\": {}", error.message),
                ..error
            });
        };
        if spec.vssds.contains(&record.vssd) {
            let message = format!(
                "QoS set \"{name}\": volume \"{volume}\" is in it with its vSSD \"{}\" already; leave one out",
                record.vssd
            );
            return refuse(ControlErrorKind::Invalid, message);
        }
    }
    for vssd in &spec.vssds {
        if !state.vssds.contains_key(vssd) {
            return missing("vSSD", vssd).map_err(|error| ControlError {
                message: format!("QoS set \"{name}\": {}", error.message),
                ..error
            });
        }
    }
    for other in state.qos_sets.values().filter(|other| other.name != *name) {
        if let Some(member) = common_member(state, spec, other) {
            let message = format!(
                "QoS set \"{name}\": {member} is in QoS set \"{}\" already, and can be in one only; take it out there first",
                other.name
            );
            return refuse(ControlErrorKind::InUse, message);
        }
    }
    Ok(())
}

fn common_member(state: &State, one: &QosSetSpec, other: &QosSetSpec) -> Option<String> {
    let vssd_of = |volume: &String| state.volumes.get(volume).map(|record| &record.vssd);
    let volume = one.volumes.iter().find(|volume| {
        other.volumes.contains(volume) || vssd_of(volume).is_some_and(|vssd| other.vssds.contains(vssd))
    });
    let vssd = one.vssds.iter().find(|vssd| {
        other.vssds.contains(vssd) || other.volumes.iter().any(|volume| vssd_of(volume) == Some(*vssd))
    });
    let volume = volume.map(|volume| format!("volume \"{volume}\""));
    volume.or_else(|| vssd.map(|vssd| format!("vSSD \"{vssd}\", or a volume on it,")))
}

/// What the shaper of the device gives out in a second.
fn rate_of(device: DeviceShaper) -> Amount {
    match device.unit {
        TokenUnit::Command => Amount::Commands(device.bucket.rate_per_second),
        TokenUnit::Bytes(_) => Amount::Bytes(Size(device.bucket.rate_per_second)),
    }
}

/// What to tell an operator, if more is committed to sets than the device gives out, or some count another unit.
pub(crate) fn shortage(state: &State, device: DeviceShaper) -> Option<Notice> {
    let rate = rate_of(device);
    let is_like = |set: &&QosSetSpec| set.rate.is_like(rate);
    let each = state.qos_sets.values().filter(is_like).map(|set| set.rate.units());
    let committed = each.fold(0, u64::saturating_add);
    let uncounted = state.qos_sets.values().filter(|set| !is_like(set)).count() as u32;
    let is_short = committed > rate.units() || uncounted > 0;
    let committed = rate.of_same_unit(committed);
    is_short.then_some(Notice::Overcommitted { committed, device: rate, uncounted })
}

/// Whether the device can give what is committed to this set and the others.
fn fits(state: &State, spec: &QosSetSpec, device: DeviceShaper) -> Result<(), ControlError> {
    let rate = rate_of(device);
    let name = &spec.name;
    if !spec.rate.is_like(rate) {
        let message = format!(
            "QoS set \"{name}\": its rate counts {}, and the shaper of the device (pool.device_rate) counts {}; use the same unit",
            spec.rate.unit(),
            rate.unit()
        );
        return refuse(ControlErrorKind::Invalid, message);
    }
    let others = state.qos_sets.values().filter(|other| other.name != *name && other.rate.is_like(rate));
    let committed: u64 = others.map(|other| other.rate.units()).fold(0, u64::saturating_add);
    let left = rate.units().saturating_sub(committed);
    if spec.rate.units() > left {
        let message = format!(
            "QoS set \"{name}\": a rate of {} a second is more than the device has left: {} of {rate} (pool.device_rate) are committed to \
             other sets; use {} or less",
            spec.rate,
            rate.of_same_unit(committed),
            rate.of_same_unit(left)
        );
        return refuse(ControlErrorKind::Exhausted, message);
    }
    Ok(())
}

/// The set that names an object, which cannot be deleted meanwhile.
pub(super) fn is_free(state: &State, kind: &str, name: &str) -> Result<(), ControlError> {
    let names = |set: &&QosSetSpec| {
        let members = if kind == "volume" { &set.volumes } else { &set.vssds };
        members.iter().any(|member| member == name)
    };
    match state.qos_sets.values().find(names) {
        None => Ok(()),
        Some(set) => {
            let message = format!(
                "{kind} \"{name}\" is in QoS set \"{}\"; take it out first (`diecut qos set`), or delete that (`diecut qos delete`)",
                set.name
            );
            refuse(ControlErrorKind::InUse, message)
        }
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::admission::BucketSize;
    use diecut_catalog::VolumeRecord;
    use diecut_spec::VolumeSpec;

    fn plan_of(state: State) -> Plan {
        Plan { next: state, steps: Vec::new() }
    }

    /// Volumes v0 to v3 on a vSSD that nothing is asked of.
    fn state() -> State {
        let volume = |number: u32| {
            let name = format!("v{number}");
            let spec = VolumeSpec::new(&name, "flash", Size(4096));
            (name, VolumeRecord { spec, index: number as u16, namespace: number })
        };
        State { volumes: (0..4).map(volume).collect(), ..State::default() }
    }

    fn set(name: &str, mib: u64, volumes: &[&str]) -> QosSetSpec {
        let volumes = volumes.iter().map(|name| (*name).to_owned()).collect();
        QosSetSpec { volumes, ..QosSetSpec::new(name, Amount::Bytes(Size(mib << 20))) }
    }

    fn device(mib: u64) -> Option<DeviceShaper> {
        let bucket = BucketSize { rate_per_second: mib << 20, size: 1 << 20 };
        Some(DeviceShaper { unit: TokenUnit::Bytes(4096), bucket })
    }

    #[track_caller]
    fn says<T: std::fmt::Debug>(outcome: Result<T, ControlError>, kind: ControlErrorKind, words: &[&str]) {
        let error = outcome.expect_err("it is refused");
        assert_eq!(error.kind, kind, "{error}");
        assert!(words.iter().all(|word| error.message.contains(word)), "{error}");
    }

    #[test]
    fn a_set_is_made_changed_and_deleted() {
        let mut plan = plan_of(state());
        let spec = set("a", 10, &["v0"]);
        create(&spec, device(10), &mut plan).expect("the device has it");
        assert_eq!((plan.next.qos_sets.get("a"), plan.steps.len()), (Some(&spec), 2));
        let mut again = plan_of(plan.next.clone());
        create(&spec, device(10), &mut again).expect("it is so already");
        assert!(again.steps.is_empty());
        says(
            create(&set("a", 9, &["v0"]), None, &mut again),
            ControlErrorKind::Exists,
            &["rate is 10 MiB, not 9 MiB"],
        );
        let faster = QosSetChange { rate: Some(Amount::Bytes(Size(11 << 20))), ..QosSetChange::default() };
        says(
            change("a", &faster, device(10), &mut again),
            ControlErrorKind::Exhausted,
            &["use 10 MiB or less"],
        );
        change("a", &faster, device(11), &mut again).expect("the device has it");
        assert_eq!(again.next.qos_sets["a"].rate, Amount::Bytes(Size(11 << 20)));
        says(
            is_free(&again.next, "volume", "v0"),
            ControlErrorKind::InUse,
            &["volume \"v0\"", "QoS set \"a\""],
        );
        assert_eq!(is_free(&again.next, "volume", "v1"), Ok(()));
        delete("a", &mut again).expect("it is there");
        assert!(again.next.qos_sets.is_empty());
        says(delete("a", &mut again), ControlErrorKind::NotFound, &["no QoS set \"a\"", "diecut qos list"]);
    }

    #[test]
    fn what_cannot_be_is_refused_by_name() {
        let mut plan = plan_of(state());
        create(&set("a", 10, &["v0", "v1"]), device(15), &mut plan).expect("the device has it");
        let mut refused =
            |spec: QosSetSpec, kind, words: &[&str]| says(create(&spec, device(15), &mut plan), kind, words);
        refused(set("b", 1, &["v9"]), ControlErrorKind::NotFound, &["QoS set \"b\"", "volume \"v9\""]);
        refused(set("b", 1, &[]), ControlErrorKind::Invalid, &["no members"]);
        refused(set("b", 1, &["v2", "v1"]), ControlErrorKind::InUse, &["volume \"v1\"", "QoS set \"a\""]);
        refused(
            set("b", 6, &["v2"]),
            ControlErrorKind::Exhausted,
            &["10 MiB of 15 MiB", "use 5 MiB or less"],
        );
        let commands = QosSetSpec { rate: Amount::Commands(100), ..set("b", 1, &["v2"]) };
        refused(commands, ControlErrorKind::Invalid, &["counts commands", "device_rate", "counts bytes"]);
    }
}
