//! Content of what was received, as far as it is kept.

/// A part of what was received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// These bytes.
    Bytes(Vec<u8>),
    /// So many bytes of content of a write.
    LeftOut(usize),
}

/// What was received at once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Content {
    /// Parts, in the order of the stream.
    pub pieces: Vec<Piece>,
}

impl Content {
    /// How long it was.
    pub fn len_bytes(&self) -> usize {
        let length = |piece: &Piece| match piece {
            Piece::Bytes(bytes) => bytes.len(),
            Piece::LeftOut(length) => *length,
        };
        self.pieces.iter().map(length).sum()
    }

    /// Puts the bytes into `place`, zeros for what was left out.
    ///
    /// # Panics
    /// If `place` is not exactly as long.
    pub fn fill(&self, mut place: &mut [u8]) {
        for piece in &self.pieces {
            match piece {
                Piece::Bytes(bytes) => {
                    let (here, rest) = place.split_at_mut(bytes.len());
                    here.copy_from_slice(bytes);
                    place = rest;
                }
                Piece::LeftOut(length) => {
                    let (here, rest) = place.split_at_mut(*length);
                    here.fill(0);
                    place = rest;
                }
            }
        }
        assert!(place.is_empty(), "content fills its place");
    }
}
