//! A segment that is being cleaned, and how far its heads were looked at.

use diecut_units::BufferMut;

/// A segment whose live IUs are copied.
pub(super) struct Victim {
    pub segment: u32,
    /// Where the next chunk begins whose head is to be looked at.
    pub offset: u32,
    pub is_walked: bool,
    /// Heads that were asked for: those ahead of `offset` lie where they do if chunks are full.
    heads: Vec<HeadRead>,
    /// The present head was read once and was none.
    pub is_second_look: bool,
    /// The chunk before was full: the next ones are expected to be.
    pub is_regular: bool,
    /// Reads of copies that are under way.
    pub reads: u32,
    /// What was read of it and is yet to be placed, or noted again.
    pub waiting: u32,
    /// Live IUs when it was chosen.
    pub live_at_start: u32,
    /// Tells the heads of two victims apart.
    pub number: u8,
}

/// A head that the cleaner asked for.
struct HeadRead {
    offset: u32,
    is_under_way: bool,
    /// `None` when it could not be read, too.
    bytes: Option<BufferMut>,
}

/// What is known of the head that comes next.
pub(super) enum NextHead {
    /// Nobody asked for it.
    Unasked,
    UnderWay,
    /// `None` if it could not be read.
    Arrived(Option<BufferMut>),
}

impl Victim {
    pub fn new(segment: u32, number: u8, live_at_start: u32, is_walked: bool) -> Victim {
        Victim {
            segment,
            offset: 0,
            is_walked,
            heads: Vec::new(),
            is_second_look: false,
            is_regular: true,
            reads: 0,
            waiting: 0,
            live_at_start,
            number,
        }
    }

    /// Whether all copies of it are in chunks of the cleaner.
    pub fn is_copied(&self) -> bool {
        self.is_walked
            && self.reads == 0
            && self.waiting == 0
            && !self.heads.iter().any(|head| head.is_under_way)
    }

    /// A read of it ended.
    pub fn read_one(&mut self) {
        assert!(self.reads > 0, "I-L22: a read of a victim ends once");
        self.reads -= 1;
    }

    /// Something that waited was placed, or is not needed.
    pub fn placed_one(&mut self) {
        assert!(self.waiting > 0, "I-L24: what is placed waited");
        self.waiting -= 1;
    }

    /// As much of `whole` as was copied, or died since it was chosen, if so many IUs live now.
    pub fn copied_share(&self, live: u32, whole: u32) -> u32 {
        let left = live.min(self.live_at_start);
        let done = u64::from(self.live_at_start - left) * u64::from(whole);
        // One in which nothing lived holds notes at most.
        done.checked_div(u64::from(self.live_at_start)).map_or(whole, |done| done as u32)
    }

    /// Forgets heads that were asked for in vain, or looked at.
    pub fn forget_passed_heads(&mut self) {
        let offset = self.offset;
        self.heads.retain(|head| head.is_under_way || head.offset >= offset);
    }

    /// Heads that are kept, or under way.
    pub fn head_count(&self) -> usize {
        self.heads.len()
    }

    /// Whether a head was asked for.
    pub fn has_head(&self, offset: u32) -> bool {
        self.heads.iter().any(|head| head.offset == offset)
    }

    /// Takes the head at `offset`, if it is here.
    pub fn take_next_head(&mut self) -> NextHead {
        let Some(at) = self.heads.iter().position(|head| head.offset == self.offset) else {
            return NextHead::Unasked;
        };
        if self.heads[at].is_under_way {
            return NextHead::UnderWay;
        }
        NextHead::Arrived(self.heads.remove(at).bytes)
    }

    /// A head was asked for.
    pub fn expect_head(&mut self, offset: u32) {
        assert!(!self.has_head(offset), "I-L21: a head is asked for once");
        self.heads.push(HeadRead { offset, is_under_way: true, bytes: None });
    }

    /// It is here, or cannot be read.
    pub fn head_arrived(&mut self, offset: u32, bytes: Option<BufferMut>) {
        let mut heads = self.heads.iter_mut();
        let head = heads.find(|head| head.offset == offset && head.is_under_way);
        let head = head.expect("I-L21: heads that arrive were asked for");
        (head.is_under_way, head.bytes) = (false, bytes);
    }
}
