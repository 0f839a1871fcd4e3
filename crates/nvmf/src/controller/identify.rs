mod zones;

use super::{
    Answer, Association, ERROR_ENTRIES_MAX, EVENT_REQUESTS_MAX, Surroundings, WARNING_TEMPERATURE_KELVIN,
};
use crate::config::{NamespaceConfig, SubsystemConfig};
use crate::format;
use crate::io::offer::{is_offered, takes};
use crate::placement::{self, ENDURANCE_GROUP};
use crate::sanitize;
use diecut_namespace::contract::{COPY_LBAS_MAX, COPY_RANGES_MAX};
use diecut_nvme::admin::Identify;
use diecut_nvme::feature::EVENT_ACCESS_CHANGE;
use diecut_nvme::identify::{
    ANACAP_ALL_STATES, ANACAP_GROUPS_STAY, CMIC_ANA, CMIC_CONTROLLERS, CONTROLLER_TYPE_DISCOVERY,
    CONTROLLER_TYPE_IO, CSI_NVM, CTRATT_DATA_PLACEMENT, CTRATT_ENDURANCE_GROUPS, CTRATT_HOST_ID_128,
    CTRATT_TRAFFIC_BASED_KEEP_ALIVE, CTRATT_UUID_LIST, FNA_NOT_ALL, IDENTIFY_SIZE_BYTES, IdentifyController,
    IdentifyNamespace, IndependentNamespace, LPA_EFFECTS, LPA_EXTENDED_DATA, LPA_SUPPORTED_PAGES,
    LPA_TELEMETRY, LbaFormat, NSFEAT_IO_OPTIMIZATION, NSFEAT_THIN, NSTAT_READY, NvmCommandSetController,
    OACS_DIRECTIVES, OACS_FORMAT_NVM, OAES_DISCOVERY_CHANGE, OAES_NAMESPACE_ATTRIBUTE, OCFS_FORMAT_0,
    ONCS_COMPARE, ONCS_COPY, ONCS_DATASET_MANAGEMENT, ONCS_RESERVATIONS, ONCS_TIMESTAMP, ONCS_VERIFY,
    ONCS_WRITE_UNCORRECTABLE, ONCS_WRITE_ZEROES, SGLS_IN_CAPSULE_OFFSET, SGLS_SUPPORTED,
    SGLS_TRANSPORT_DATA_BLOCK, VWC_PRESENT, cns, controller_list, endurance_group_list,
    namespace_descriptors, namespace_list, uuid_list,
};
use diecut_nvme::opcode::io;
use diecut_nvme::property::VERSION_2_0;
use diecut_nvme::reservation::{RESCAP_ALL_TYPES, RESCAP_IEKEY_1_3, RESCAP_PERSIST};
use diecut_nvme::sanitize::{
    SANICAP_BLOCK_ERASE, SANICAP_NO_DEALLOCATE_INHIBITED, SANICAP_NOT_MODIFIED_AFTERWARDS,
};
use diecut_nvme::zns::{CSI_ZONED, EVENT_ZONE_DESCRIPTOR_CHANGED};
use diecut_nvme::{DISCOVERY_SUBSYSTEM_NQN, NSID_ALL, Status, SubmissionEntry, ascii_padded};
use zerocopy::IntoBytes;

/// Identify (Base 2.0 section 5.17).
pub(crate) fn identify(
    association: &Association,
    entry: &SubmissionEntry,
    around: &Surroundings<'_>,
) -> Answer {
    let identify = Identify::decode(entry);
    let nsid = entry.nsid.get();
    let mut page = [0u8; IDENTIFY_SIZE_BYTES];
    let invalid_field = Answer::Fail(Status::INVALID_FIELD.do_not_retry());
    if association.is_discovery() && identify.cns != cns::CONTROLLER {
        return invalid_field;
    }
    if matches!(
        identify.cns,
        cns::COMMAND_SET_NAMESPACE | cns::COMMAND_SET_CONTROLLER | cns::COMMAND_SET_ACTIVE_NAMESPACES
    ) && !matches!(identify.command_set, CSI_NVM | CSI_ZONED)
    {
        return invalid_field;
    }
    let Some(subsystem) = around.subsystem else {
        return Answer::Data(controller(association, around).as_bytes().to_vec());
    };
    // An NSID that is valid but inactive reads as zeros, an invalid one is an error (Base 2.0 section 3.2.1.2).
    let namespace = || match subsystem.namespaces.get(&nsid) {
        Some(namespace) => Ok(Some(namespace)),
        None if nsid == 0 || nsid > NSID_MAX => {
            Err(Answer::Fail(Status::INVALID_NAMESPACE_OR_FORMAT.do_not_retry()))
        }
        None => Ok(None),
    };
    if identify.command_set == CSI_ZONED
        && matches!(identify.cns, cns::COMMAND_SET_NAMESPACE | cns::COMMAND_SET_CONTROLLER)
    {
        return zones::identify(identify.cns, namespace());
    }
    match identify.cns {
        cns::CONTROLLER => return Answer::Data(controller(association, around).as_bytes().to_vec()),
        cns::NAMESPACE => match namespace() {
            Ok(Some(namespace)) => {
                return Answer::Data(namespace_page(association, namespace).as_bytes().to_vec());
            }
            Ok(None) => {}
            // FFFFFFFFh asks for what all namespaces have in common; that needs namespace management.
            Err(answer) => return answer,
        },
        cns::INDEPENDENT_NAMESPACE => match namespace() {
            Ok(Some(namespace)) => {
                return Answer::Data(independent_page(namespace).as_bytes().to_vec());
            }
            Ok(None) => {}
            Err(answer) => return answer,
        },
        cns::COMMAND_SET_NAMESPACE => {
            // Storage tags and 64-bit guards: none, so zeros.
            if let Err(answer) = namespace() {
                return answer;
            }
        }
        cns::ACTIVE_NAMESPACES | cns::COMMAND_SET_ACTIVE_NAMESPACES => {
            if nsid >= NSID_ALL - 1 {
                return Answer::Fail(Status::INVALID_NAMESPACE_OR_FORMAT.do_not_retry());
            }
            list_active(&mut page, subsystem, &identify, nsid);
        }
        cns::NAMESPACE_DESCRIPTORS => match namespace() {
            Ok(Some(namespace)) => {
                let set = command_set_of(namespace);
                namespace_descriptors(&mut page, &namespace.nguid, &namespace.uuid, set);
            }
            _ => return Answer::Fail(Status::INVALID_NAMESPACE_OR_FORMAT.do_not_retry()),
        },
        cns::COMMAND_SET_CONTROLLER => {
            // DMRL 256 does not fit its byte, so 0: as many as the command can name.
            return Answer::Data(NvmCommandSetController::default().as_bytes().to_vec());
        }
        cns::CONTROLLERS => {
            controller_list(&mut page, around.controllers.iter().copied(), identify.controller_id);
        }
        _ if list_of_subsystem(&mut page, subsystem, &identify) => {}
        _ => return invalid_field,
    }
    Answer::Data(page.to_vec())
}

/// Fills a list that concerns the subsystem. Says whether it is one.
fn list_of_subsystem(
    page: &mut [u8; IDENTIFY_SIZE_BYTES],
    subsystem: &SubsystemConfig,
    identify: &Identify,
) -> bool {
    match identify.cns {
        cns::ENDURANCE_GROUPS if placement::of_subsystem(subsystem).is_some() => {
            endurance_group_list(page, [ENDURANCE_GROUP], identify.specific_id);
        }
        cns::UUIDS => uuid_list(page, &[diecut_nvme::ocp::UUID]),
        // Combination 0: the NVM command set and zones.
        cns::COMMAND_SETS => page[0] = 1 << CSI_NVM | 1 << CSI_ZONED,
        _ => return false,
    }
    true
}

/// The group of all namespaces: every path to them is as good as the others.
pub(super) const ANA_GROUP: u32 = 1;
/// Longest change of a state that a host must bear; none changes.
const ANA_TRANSITION_SECONDS: u8 = 10;

/// What reservations can be: all types, and what a host wants to persist through power loss does.
const RESCAP: u8 = RESCAP_PERSIST | RESCAP_ALL_TYPES | RESCAP_IEKEY_1_3;

/// Largest NSID, as NN says: ids are the administrator's choice in this range.
pub(crate) const NSID_MAX: u32 = 1024;

fn independent_page(namespace: &NamespaceConfig) -> IndependentNamespace {
    IndependentNamespace {
        nmic: 1,
        rescap: RESCAP,
        nsattr: u8::from(namespace.properties.read_only),
        anagrpid: ANA_GROUP.into(),
        nstat: NSTAT_READY,
        endgid: endurance_group_of(namespace).into(),
        ..IndependentNamespace::default()
    }
}

/// The endurance group of a namespace; 0 if it is in none.
fn endurance_group_of(namespace: &NamespaceConfig) -> u16 {
    if namespace.properties.placement.is_some() { ENDURANCE_GROUP } else { 0 }
}

/// Lists active namespaces behind an NSID: all of them, or those of a command set.
fn list_active(
    page: &mut [u8; IDENTIFY_SIZE_BYTES],
    subsystem: &SubsystemConfig,
    identify: &Identify,
    after: u32,
) {
    let is_listed = |namespace: &NamespaceConfig| {
        identify.cns == cns::ACTIVE_NAMESPACES || command_set_of(namespace) == identify.command_set
    };
    let listed = subsystem.namespaces.iter().filter(|(_, namespace)| is_listed(namespace));
    namespace_list(page, listed.map(|(nsid, _)| *nsid), after);
}

/// The command set that a namespace speaks.
fn command_set_of(namespace: &NamespaceConfig) -> u8 {
    if namespace.properties.zones.is_some() { CSI_ZONED } else { CSI_NVM }
}

/// A volume is thin however much of it is written.
fn nsfeat(namespace: &NamespaceConfig) -> u8 {
    NSFEAT_IO_OPTIMIZATION | if namespace.is_direct() { 0 } else { NSFEAT_THIN }
}

fn namespace_page(association: &Association, namespace: &NamespaceConfig) -> IdentifyNamespace {
    let properties = &namespace.properties;
    let preferred = properties.preferred_write_lbas.clamp(1, 0x1_0000) - 1;
    let mut page = IdentifyNamespace {
        nsze: properties.size_lbas.into(),
        ncap: match namespace.is_direct() {
            true => properties.capacity_lbas,
            false => properties.capacity_lbas.max(properties.size_lbas),
        }
        .into(),
        nuse: if association.path.hides_figures() { 0 } else { namespace.used_lbas() }.into(),
        nsfeat: nsfeat(namespace),
        nmic: 1,
        rescap: RESCAP,
        anagrpid: ANA_GROUP.into(),
        // Deallocated blocks read as zeros (001b), and Write Zeroes may deallocate (bit 3). Blocks of chunks that were not written are an
        // error.
        dlfeat: match (properties.zones, properties.chunks) {
            (_, Some(_)) => 0,
            (Some(_), _) => 0b0001,
            _ => 0b1001,
        },
        npwg: (preferred as u16).into(),
        npwa: (preferred as u16).into(),
        npdg: (preferred as u16).into(),
        npda: (preferred as u16).into(),
        mssrl: (COPY_LBAS_MAX as u16).into(),
        mcl: COPY_LBAS_MAX.into(),
        msrc: (COPY_RANGES_MAX - 1) as u8,
        nsattr: u8::from(properties.read_only),
        nvmcap: (u128::from(properties.capacity_lbas) << properties.lba_size_log2).into(),
        endgid: endurance_group_of(namespace).into(),
        nguid: namespace.nguid,
        ..IdentifyNamespace::default()
    };
    page.lbaf[0] = LbaFormat { lba_size_log2: properties.lba_size_log2, ..LbaFormat::default() };
    page
}

/// Bits of ONCS for commands that some namespace takes: a host believes them of all namespaces.
fn oncs_of_commands(subsystem: &SubsystemConfig) -> u16 {
    let bits = [
        (io::COMPARE, ONCS_COMPARE),
        (io::WRITE_UNCORRECTABLE, ONCS_WRITE_UNCORRECTABLE),
        (io::DATASET_MANAGEMENT, ONCS_DATASET_MANAGEMENT),
        (io::WRITE_ZEROES, ONCS_WRITE_ZEROES),
        (io::VERIFY, ONCS_VERIFY),
        (io::COPY, ONCS_COPY),
    ];
    let offered = bits.iter().filter(|(code, _)| is_offered(subsystem, |one| takes(one, *code)));
    offered.fold(0, |all, (_, bit)| all | bit)
}

fn controller(association: &Association, around: &Surroundings<'_>) -> IdentifyController {
    let config = around.config;
    let discovery = association.is_discovery();
    let (serial, model, nqn) = match around.subsystem {
        Some(subsystem) => (subsystem.serial.as_str(), subsystem.model.as_str(), subsystem.nqn.as_str()),
        None => ("diecut-discovery", "diecut discovery", DISCOVERY_SUBSYSTEM_NQN),
    };
    let mut page = IdentifyController {
        sn: ascii_padded(serial),
        mn: ascii_padded(model),
        fr: ascii_padded(&config.firmware),
        rab: 6,
        cmic: CMIC_CONTROLLERS,
        mdts: (config.queue.transfer_bytes_max / 4096).ilog2() as u8,
        cntlid: association.controller_id.into(),
        ver: VERSION_2_0.into(),
        oaes: match discovery {
            true => OAES_DISCOVERY_CHANGE,
            false => OAES_NAMESPACE_ATTRIBUTE | EVENT_ACCESS_CHANGE | EVENT_ZONE_DESCRIPTOR_CHANGED,
        }
        .into(),
        ctratt: (CTRATT_HOST_ID_128
            | CTRATT_TRAFFIC_BASED_KEEP_ALIVE
            | if discovery { 0 } else { CTRATT_UUID_LIST })
        .into(),
        cntrltype: if discovery { CONTROLLER_TYPE_DISCOVERY } else { CONTROLLER_TYPE_IO },
        acl: 3,
        aerl: (EVENT_REQUESTS_MAX - 1) as u8,
        frmw: 0b11, // one slot, read only
        lpa: LPA_EXTENDED_DATA
            | if discovery { 0 } else { LPA_EFFECTS | LPA_SUPPORTED_PAGES | LPA_TELEMETRY },
        elpe: (ERROR_ENTRIES_MAX - 1) as u8,
        wctemp: WARNING_TEMPERATURE_KELVIN.into(),
        cctemp: 353.into(),
        kas: 1.into(),
        sqes: 0x66,
        cqes: 0x44,
        maxcmd: config.queue.queue_entries_max.into(),
        sgls: (SGLS_SUPPORTED | SGLS_IN_CAPSULE_OFFSET | SGLS_TRANSPORT_DATA_BLOCK).into(),
        ..IdentifyController::default()
    };
    page.subnqn[..nqn.len()].copy_from_slice(nqn.as_bytes());
    page.ioccsz = ((SubmissionEntry::SIZE_BYTES as u32 + config.queue.in_capsule_bytes) / 16).into();
    page.iorcsz = 1.into();
    page.msdbd = 1;
    if let Some(subsystem) = around.subsystem {
        page.nn = NSID_MAX.into();
        if is_offered(subsystem, format::takes) {
            page.oacs = (page.oacs.get() | OACS_FORMAT_NVM).into();
            page.fna = FNA_NOT_ALL;
        }
        if placement::of_subsystem(subsystem).is_some() {
            page.ctratt = (page.ctratt.get() | CTRATT_ENDURANCE_GROUPS | CTRATT_DATA_PLACEMENT).into();
            page.oacs = (page.oacs.get() | OACS_DIRECTIVES).into();
            page.endgidmax = ENDURANCE_GROUP.into();
        }
        if sanitize::is_offered(subsystem) {
            page.sanicap =
                (SANICAP_BLOCK_ERASE | SANICAP_NO_DEALLOCATE_INHIBITED | SANICAP_NOT_MODIFIED_AFTERWARDS)
                    .into();
        }
        page.cmic |= CMIC_ANA;
        page.anatt = ANA_TRANSITION_SECONDS;
        page.anacap = ANACAP_ALL_STATES | ANACAP_GROUPS_STAY;
        page.anagrpmax = ANA_GROUP.into();
        page.nanagrpid = ANA_GROUP.into();
        page.mnan = NSID_MAX.into();
        page.oncs = (ONCS_RESERVATIONS | ONCS_TIMESTAMP | oncs_of_commands(subsystem)).into();
        page.ocfs = OCFS_FORMAT_0.into();
        let volatile = subsystem.namespaces.values().any(|namespace| namespace.properties.volatile_cache);
        // Bits 2:1 = 10b: Flush with NSID FFFFFFFFh is not supported.
        page.vwc = 0b100 | if volatile { VWC_PRESENT } else { 0 };
        // One LBA lands whole or not at all, also when the power goes.
        page.awun = 0.into();
        page.awupf = 0.into();
    }
    page
}
