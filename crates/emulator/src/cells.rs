//! Which pages share a word line, and what that means for program units and power cuts.

use crate::Profile;

/// The pairing model.
///
/// A row is one page offset on all planes. In one-shot cells, rows `k*w .. k*w + k` (k bits per cell) are word
/// line `w` and form one program unit: it is complete or torn, and a power cut reaches nothing before it.
///
/// Otherwise a program unit is one row, and word lines are filled in the interleaved order that keeps
/// neighbours from disturbing each other: step `s` programs the first page of word line `s`, the second page of
/// word line `s - 1`, and so on, as far as those exist. For two bits that is L0, L1 U0, L2 U1, .. While a later
/// page of a word line is programmed, its earlier pages can be destroyed by a power cut; the distance between
/// them is at most k*k - 1 units (3, 8, 15), which is [`CellLayout::unsafe_units`].
#[derive(Clone, Debug)]
pub(crate) struct CellLayout {
    /// Page type of each row: 0 is the lower page.
    bit_of_row: Vec<u8>,
    /// Word line of each row.
    word_line_of_row: Vec<u32>,
    /// Row of each page of each word line, `bits_per_cell` per word line.
    row_of_page: Vec<u32>,
    bits_per_cell: u32,
    unit_rows: u32,
    unsafe_units: u32,
    planes: u32,
}

impl CellLayout {
    pub(crate) fn new(profile: &Profile) -> CellLayout {
        let bits = u32::from(profile.cell.bits_per_cell);
        let rows = profile.geometry.pages_per_block;
        let word_lines = rows / bits;
        let mut bit_of_row = Vec::with_capacity(rows as usize);
        let mut word_line_of_row = Vec::with_capacity(rows as usize);
        if profile.cell.one_shot {
            for row in 0..rows {
                bit_of_row.push((row % bits) as u8);
                word_line_of_row.push(row / bits);
            }
        } else {
            for step in 0..word_lines + bits - 1 {
                for bit in 0..bits {
                    if let Some(word_line) = step.checked_sub(bit).filter(|&line| line < word_lines) {
                        bit_of_row.push(bit as u8);
                        word_line_of_row.push(word_line);
                    }
                }
            }
        }
        assert_eq!(bit_of_row.len() as u32, rows, "every row has its place on a word line");
        let mut row_of_page = vec![0; rows as usize];
        for row in 0..rows as usize {
            row_of_page[(word_line_of_row[row] * bits + u32::from(bit_of_row[row])) as usize] = row as u32;
        }
        let unit_rows = if profile.cell.one_shot { bits } else { 1 };
        let unsafe_units = if profile.cell.one_shot {
            0
        } else {
            (0..word_lines)
                .map(|line| {
                    let first = row_of_page[(line * bits) as usize];
                    row_of_page[(line * bits + bits - 1) as usize] - first
                })
                .max()
                .unwrap_or(0)
        };
        let planes = u32::from(profile.geometry.planes_per_die);
        CellLayout {
            bit_of_row,
            word_line_of_row,
            row_of_page,
            bits_per_cell: bits,
            unit_rows,
            unsafe_units,
            planes,
        }
    }

    /// Page type of a row.
    pub(crate) fn bit(&self, row: u32) -> usize {
        usize::from(self.bit_of_row[row as usize])
    }

    /// Rows of an erase block.
    pub(crate) fn rows(&self) -> u32 {
        self.bit_of_row.len() as u32
    }

    /// Planes that a row lies on.
    pub(crate) fn planes(&self) -> u32 {
        self.planes
    }

    /// Rows of one program unit.
    pub(crate) fn unit_rows(&self) -> u32 {
        self.unit_rows
    }

    /// Pages of one program unit.
    pub(crate) fn unit_pages(&self) -> u32 {
        self.unit_rows * self.planes
    }

    /// See [`diecut_media::Capabilities::unsafe_units`].
    pub(crate) fn unsafe_units(&self) -> u32 {
        self.unsafe_units
    }

    /// Rows before the unit at `row` that share its word line: what a power cut during its program can destroy.
    pub(crate) fn rows_at_risk(&self, row: u32) -> impl Iterator<Item = u32> + '_ {
        let line = self.word_line_of_row[row as usize];
        let earlier = if self.unit_rows > 1 { 0 } else { u32::from(self.bit_of_row[row as usize]) };
        (0..earlier).map(move |bit| self.row_of_page[(line * self.bits_per_cell + bit) as usize])
    }
}

#[cfg(test)]
mod test {
    use super::*;

    fn layout(bits: u8, rows: u32, one_shot: bool) -> CellLayout {
        let mut profile = Profile::named("tiny").unwrap();
        profile.cell.bits_per_cell = bits;
        profile.cell.one_shot = one_shot;
        profile.geometry.pages_per_block = rows;
        CellLayout::new(&profile)
    }

    #[test]
    fn two_bits_are_filled_in_the_published_order() {
        let cells = layout(2, 8, false);
        assert_eq!(cells.word_line_of_row, [0, 1, 0, 2, 1, 3, 2, 3]);
        assert_eq!(cells.bit_of_row, [0, 0, 1, 0, 1, 0, 1, 1]);
        assert_eq!(cells.rows_at_risk(4).collect::<Vec<_>>(), [1]);
        assert_eq!(cells.rows_at_risk(3).count(), 0, "a lower page endangers nothing");
    }

    #[test]
    fn nothing_at_risk_is_farther_back_than_unsafe_units() {
        for (bits, unsafe_units) in [(1, 0), (2, 3), (3, 8), (4, 15)] {
            let cells = layout(bits, 96, false);
            assert_eq!(cells.unsafe_units(), unsafe_units);
            for row in 0..96 {
                for risk in cells.rows_at_risk(row) {
                    assert!(risk < row && row - risk <= unsafe_units, "row {row} endangers row {risk}");
                }
            }
        }
    }

    #[test]
    fn one_shot_cells_endanger_nothing_before_them() {
        let cells = layout(3, 96, true);
        assert_eq!((cells.unit_rows(), cells.unsafe_units()), (3, 0));
        assert_eq!((0..96).map(|row| cells.rows_at_risk(row).count()).sum::<usize>(), 0);
    }
}
