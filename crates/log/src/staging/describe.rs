//! Staging in words, for debugging.

use super::Staging;

impl std::fmt::Display for Staging {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        let open: Vec<usize> = self.streams.all().filter_map(|stream| self.open[stream]).collect();
        writeln!(f, "sealed {:?} open {open:?}", self.sealed)?;
        for (i, c) in self.chunks() {
            writeln!(
                f,
                "slot {i}: {:?} stream {:?} segment {} first {} units {} seq {} data {} notes {} pending {}",
                c.state(),
                c.stream,
                c.segment,
                c.first_unit,
                c.units,
                c.sequence,
                c.data_count,
                c.note_count,
                c.pending
            )?;
        }
        Ok(())
    }
}
