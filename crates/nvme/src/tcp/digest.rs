use diecut_units::checksum;

/// Size of a header or data digest.
pub const DIGEST_SIZE_BYTES: usize = 4;

/// Which digests a connection uses (TCP 1.0 section 3.3.1.1; DGST of ICReq and ICResp: bit 0 header, bit 1 data).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Digests {
    /// CRC-32C over the header, after the header.
    pub header: bool,
    /// CRC-32C over the data, after the data.
    pub data: bool,
}

impl Digests {
    /// None at all.
    pub const NONE: Digests = Digests { header: false, data: false };

    /// From DGST; bits 7:2 are reserved and ignored.
    pub fn decode(dgst: u8) -> Digests {
        Digests { header: dgst & 1 != 0, data: dgst & 2 != 0 }
    }
    /// As DGST.
    pub fn encode(self) -> u8 {
        u8::from(self.header) | u8::from(self.data) << 1
    }
    /// What both ends support.
    pub fn and(self, other: Digests) -> Digests {
        Digests { header: self.header && other.header, data: self.data && other.data }
    }
    /// Bytes after each header: 4 or 0.
    #[inline]
    pub fn header_bytes(self) -> usize {
        if self.header { DIGEST_SIZE_BYTES } else { 0 }
    }
    /// Bytes after data: 4 or 0.
    #[inline]
    pub fn data_bytes(self) -> usize {
        if self.data { DIGEST_SIZE_BYTES } else { 0 }
    }
}

/// The digest of `bytes` as it stands on the wire (TCP 1.0 section 3.3.1.1: CRC-32C, little endian).
pub fn digest_of(bytes: &[u8]) -> [u8; DIGEST_SIZE_BYTES] {
    checksum(bytes).to_le_bytes()
}

/// Whether `wire` (4 bytes) is the digest of `bytes`. Bytes that are not there do not match.
pub fn digest_matches(bytes: &[u8], wire: &[u8]) -> bool {
    wire == digest_of(bytes)
}

#[cfg(test)]
mod test {
    use super::*;

    /// Vectors of RFC 3720 appendix B.4 (iSCSI), which TCP 1.0 section 3.3.1.1 points to.
    #[test]
    fn digests_are_those_of_the_published_vectors() {
        assert_eq!(digest_of(&[0; 32]), [0xAA, 0x36, 0x91, 0x8A]);
        assert_eq!(digest_of(&[0xFF; 32]), [0x43, 0xAB, 0xA8, 0x62]);
        let rising: Vec<u8> = (0..32).collect();
        assert_eq!(digest_of(&rising), [0x4E, 0x79, 0xDD, 0x46]);
        assert!(digest_matches(&rising, &[0x4E, 0x79, 0xDD, 0x46]));
        assert!(!digest_matches(&rising, &[0x4E, 0x79, 0xDD]));
    }
}
