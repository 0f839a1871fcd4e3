use crc_fast::{CrcAlgorithm, Digest};

/// CRC-32C of `bytes`: the checksum of OOB records, IUs and on-media records (NVMe/TCP digests use the same
/// polynomial).
pub fn checksum(bytes: &[u8]) -> u32 {
    crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

/// Continues a CRC-32C over more bytes: `checksum_append(checksum(a), b) == checksum(a ++ b)`.
pub fn checksum_append(checksum: u32, bytes: &[u8]) -> u32 {
    // The register of a CRC-32C is the complement of what it is told as.
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, u64::from(!checksum));
    digest.update(bytes);
    digest.finalize() as u32
}

#[cfg(test)]
mod test {
    #[test]
    fn matches_the_check_value_of_the_polynomial() {
        // RFC 3720 B.4: 32 bytes of zeros.
        assert_eq!(super::checksum(&[0; 32]), 0x8a91_36aa);
        assert_eq!(super::checksum(b"123456789"), 0xe306_9283);
        assert_eq!(super::checksum_append(super::checksum(b"1234"), b"56789"), 0xe306_9283);
        let bytes: Vec<u8> = (0..6000u32).map(|at| ((at * at) >> 3) as u8).collect();
        for cut in [0, 1, 63, 64, 255, 256, 4096, 5999, 6000] {
            let (front, back) = bytes.split_at(cut);
            assert_eq!(
                super::checksum_append(super::checksum(front), back),
                super::checksum(&bytes),
                "cut at {cut}"
            );
        }
    }
}
