/// CRC-32C of `bytes`: the checksum of OOB records, IUs and on-media records (NVMe/TCP digests use the same
/// polynomial).
pub fn checksum(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
}

/// Continues a CRC-32C over more bytes: `checksum_append(checksum(a), b) == checksum(a ++ b)`.
pub fn checksum_append(checksum: u32, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(checksum, bytes)
}

#[cfg(test)]
mod test {
    #[test]
    fn matches_the_check_value_of_the_polynomial() {
        // RFC 3720 B.4: 32 bytes of zeros.
        assert_eq!(super::checksum(&[0; 32]), 0x8a91_36aa);
        assert_eq!(super::checksum(b"123456789"), 0xe306_9283);
        assert_eq!(super::checksum_append(super::checksum(b"1234"), b"56789"), 0xe306_9283);
    }
}
