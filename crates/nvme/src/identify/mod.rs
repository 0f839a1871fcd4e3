//! Identify data structures (Base 2.0 section 5.17; NVM 1.0 section 4.1.5). Each is 4096 bytes on the wire.

mod controller;
mod lists;
mod namespace;

pub use controller::{
    ANACAP_ALL_STATES, ANACAP_GROUPS_STAY, CMIC_ANA, CMIC_CONTROLLERS, CONTROLLER_TYPE_DISCOVERY,
    CONTROLLER_TYPE_IO, CTRATT_DATA_PLACEMENT, CTRATT_ENDURANCE_GROUPS, CTRATT_HOST_ID_128,
    CTRATT_TRAFFIC_BASED_KEEP_ALIVE, CTRATT_UUID_LIST, FNA_NOT_ALL, IdentifyController, LPA_EFFECTS,
    LPA_EXTENDED_DATA, LPA_SUPPORTED_PAGES, LPA_TELEMETRY, OACS_DIRECTIVES, OACS_FORMAT_NVM,
    OAES_DISCOVERY_CHANGE, OAES_NAMESPACE_ATTRIBUTE, OCFS_FORMAT_0, ONCS_COMPARE, ONCS_COPY,
    ONCS_DATASET_MANAGEMENT, ONCS_RESERVATIONS, ONCS_TIMESTAMP, ONCS_VERIFY, ONCS_WRITE_UNCORRECTABLE,
    ONCS_WRITE_ZEROES, SGLS_IN_CAPSULE_OFFSET, SGLS_KEYED, SGLS_SUPPORTED, SGLS_TRANSPORT_DATA_BLOCK,
    VWC_FLUSH_ALL, VWC_PRESENT,
};
pub use lists::{
    NAMESPACE_LIST_LENGTH, controller_list, endurance_group_list, namespace_descriptors, namespace_list,
    parse_namespace_descriptors, parse_namespace_list, uuid_list,
};
pub use namespace::{
    IdentifyNamespace, IndependentNamespace, LbaFormat, NSFEAT_DEALLOCATED_ERROR, NSFEAT_IO_OPTIMIZATION,
    NSFEAT_THIN, NSTAT_READY, NvmCommandSetController,
};

/// Size of every Identify data structure.
pub const IDENTIFY_SIZE_BYTES: usize = 4096;

/// CNS values (Base 2.0 figure 273).
pub mod cns {
    #![allow(missing_docs, reason = "the names are the specification's")]
    pub const NAMESPACE: u8 = 0x00;
    pub const CONTROLLER: u8 = 0x01;
    pub const ACTIVE_NAMESPACES: u8 = 0x02;
    pub const NAMESPACE_DESCRIPTORS: u8 = 0x03;
    pub const COMMAND_SET_NAMESPACE: u8 = 0x05;
    pub const COMMAND_SET_CONTROLLER: u8 = 0x06;
    pub const COMMAND_SET_ACTIVE_NAMESPACES: u8 = 0x07;
    pub const INDEPENDENT_NAMESPACE: u8 = 0x08;
    pub const ALLOCATED_NAMESPACES: u8 = 0x10;
    pub const ALLOCATED_NAMESPACE: u8 = 0x11;
    pub const NAMESPACE_CONTROLLERS: u8 = 0x12;
    pub const CONTROLLERS: u8 = 0x13;
    pub const UUIDS: u8 = 0x17;
    pub const ENDURANCE_GROUPS: u8 = 0x19;
    pub const COMMAND_SETS: u8 = 0x1C;
}

/// Command set identifier of the NVM command set (Base 2.0 figure 274).
pub const CSI_NVM: u8 = 0;
