//! Gathering: records and pages become batches.

use crate::format::{RECORDS_MAX_BYTES, Record};
use diecut_units::IU_SIZE_BYTES;

/// What a batch of records and extents takes of its header besides names, for one extent.
const EXTENT_SIZE_BYTES: usize = 21;

/// One batch before it has a number.
pub(crate) struct Plan {
    pub stream: usize,
    pub records: Vec<Record>,
    record_bytes: usize,
    pub data: Vec<u8>,
}

/// Records and pages on their way into batches.
pub(crate) struct Gathering {
    plans: Vec<Plan>,
    data_ius_max: usize,
}

impl Gathering {
    pub fn new(batch_ius: u32, unit_ius: u32) -> Gathering {
        assert!(batch_ius > 1 && batch_ius.is_multiple_of(unit_ius), "a header and data");
        Gathering { plans: Vec::new(), data_ius_max: batch_ius as usize - 1 }
    }

    /// The batch that takes so much more. Only the last one does: the order of batches is that of what they say.
    fn plan(&mut self, stream: usize, record_bytes: usize, pages: usize) -> &mut Plan {
        let fits = self.plans.last().is_some_and(|plan| {
            (plan.stream == stream || plan.data.is_empty())
                && plan.record_bytes + record_bytes <= RECORDS_MAX_BYTES
                && plan.data.len() / IU_SIZE_BYTES + pages <= self.data_ius_max
        });
        if !fits {
            self.plans.push(Plan { stream, records: Vec::new(), record_bytes: 0, data: Vec::new() });
        }
        let plan = self.plans.last_mut().expect("pushed above");
        if pages > 0 {
            plan.stream = stream;
        }
        plan
    }

    pub fn add_record(&mut self, stream: usize, record: Record) {
        let mut bytes = Vec::new();
        record.encode(&mut bytes);
        let plan = self.plan(stream, bytes.len(), 0);
        plan.record_bytes += bytes.len();
        plan.records.push(record);
    }

    /// Wherever the last one goes: for what says nothing about the life of something.
    pub fn add_record_to_last(&mut self, record: Record) {
        let stream = self.plans.last().map_or(0, |plan| plan.stream);
        self.add_record(stream, record);
    }

    pub fn add_page(&mut self, stream: usize, file: u64, iu: u64, page: &[u8]) {
        let plan = self.plan(stream, EXTENT_SIZE_BYTES, 1);
        plan.data.extend_from_slice(page);
        if let Some(Record::Extent { file: last, first, count }) = plan.records.last_mut()
            && *last == file
            && *first + u64::from(*count) == iu
        {
            *count += 1;
            return;
        }
        plan.record_bytes += EXTENT_SIZE_BYTES;
        plan.records.push(Record::Extent { file, first: iu, count: 1 });
    }

    pub fn done(self) -> Vec<Plan> {
        self.plans
    }
}
