use crc_fast::{CrcAlgorithm, Digest};

/// Up to here the processor's own instruction, word by word, is done before the library has chosen its way: tags, page
/// marks and OOB records are this short, and there are several for each IU.
const SHORT_MAX_BYTES: usize = 64;

/// CRC-32C of `bytes`: the checksum of OOB records, IUs and on-media records (NVMe/TCP digests use the same
/// polynomial).
#[inline]
pub fn checksum(bytes: &[u8]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if bytes.len() <= SHORT_MAX_BYTES && std::arch::is_x86_feature_detected!("sse4.2") {
        // SAFETY: the processor has the instruction.
        return unsafe { short(0, bytes) };
    }
    crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

/// Continues a CRC-32C over a few bytes.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse4.2")]
#[inline]
fn short(checksum: u32, bytes: &[u8]) -> u32 {
    use std::arch::x86_64::{_mm_crc32_u8, _mm_crc32_u32, _mm_crc32_u64};
    let (words, rest) = bytes.as_chunks::<8>();
    // The register of a CRC-32C is the complement of what it is told as.
    let register = u64::from(!checksum);
    let long = words.iter().fold(register, |crc, word| _mm_crc32_u64(crc, u64::from_le_bytes(*word)));
    // Records are whole words of four bytes, mostly.
    let (halves, rest) = rest.as_chunks::<4>();
    let register = halves.iter().fold(long as u32, |crc, half| _mm_crc32_u32(crc, u32::from_le_bytes(*half)));
    !rest.iter().fold(register, |crc, byte| _mm_crc32_u8(crc, *byte))
}

/// Continues a CRC-32C over more bytes: `checksum_append(checksum(a), b) == checksum(a ++ b)`.
#[inline]
pub fn checksum_append(checksum: u32, bytes: &[u8]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if bytes.len() <= SHORT_MAX_BYTES && std::arch::is_x86_feature_detected!("sse4.2") {
        // SAFETY: the processor has the instruction.
        return unsafe { short(checksum, bytes) };
    }
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, u64::from(!checksum));
    digest.update(bytes);
    digest.finalize() as u32
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn matches_the_check_value_of_the_polynomial() {
        // RFC 3720 B.4: 32 bytes of zeros.
        assert_eq!(checksum(&[0; 32]), 0x8a91_36aa);
        assert_eq!(checksum(b"123456789"), 0xe306_9283);
        assert_eq!(checksum_append(checksum(b"1234"), b"56789"), 0xe306_9283);
        let bytes: Vec<u8> = (0..6000u32).map(|at| ((at * at) >> 3) as u8).collect();
        for cut in [0, 1, 63, 64, 255, 256, 4096, 5999, 6000] {
            let (front, back) = bytes.split_at(cut);
            assert_eq!(checksum_append(checksum(front), back), checksum(&bytes), "cut at {cut}");
        }
    }

    /// Both ways give the same, whatever the length.
    #[test]
    fn short_and_long_agree() {
        let bytes: Vec<u8> = (0..200u32).map(|at| (at * 37 + ((at * at) >> 2)) as u8).collect();
        for end in 0..bytes.len() {
            let long = crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, &bytes[..end]) as u32;
            assert_eq!(checksum(&bytes[..end]), long, "{end} bytes");
            for cut in [0, 1, 7, 8, 65, end].map(|cut: usize| cut.min(end)) {
                let (front, back) = bytes.split_at(cut);
                let joined = checksum_append(checksum(front), &back[..end - cut]);
                assert_eq!(joined, long, "{end} bytes, cut at {cut}");
            }
        }
    }
}
