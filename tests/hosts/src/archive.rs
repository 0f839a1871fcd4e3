//! Writes the small cpio archive that carries the scenario into a guest: the kernel unpacks concatenated archives in
//! order, so this one is appended to the prepared ones and may replace their files.

/// A cpio archive in the `newc` form under construction.
#[derive(Default)]
pub struct Archive {
    bytes: Vec<u8>,
    inode: u32,
}

impl Archive {
    /// Adds a folder.
    pub fn folder(&mut self, path: &str) {
        self.entry(path, 0o040_755, &[]);
    }

    /// Adds a file that may be executed.
    pub fn file(&mut self, path: &str, content: &[u8]) {
        self.entry(path, 0o100_755, content);
    }

    /// Closes the archive and returns its bytes.
    pub fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, &[]);
        self.bytes
    }

    fn entry(&mut self, path: &str, mode: u32, content: &[u8]) {
        self.inode += 1;
        let size_bytes = u32::try_from(content.len()).expect("files of a guest are small");
        let name_bytes = u32::try_from(path.len() + 1).expect("paths are short");
        // Magic, then 13 fields of 8 hexadecimal digits: inode, mode, uid, gid, links, mtime, size, device and special
        // device (major, minor), name length with its closing zero, checksum.
        let fields = [self.inode, mode, 0, 0, 1, 0, size_bytes, 0, 0, 0, 0, name_bytes, 0];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes.extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(path.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(content);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod test {
    use super::Archive;

    #[test]
    fn header_and_padding_follow_the_newc_form() {
        let mut archive = Archive::default();
        archive.file("ab", b"xyz");
        let bytes = archive.finish();
        // 110 bytes of header, "ab\0" and 3 of padding, "xyz" and 1 of padding; then the trailer.
        assert_eq!(&bytes[..6], b"070701");
        assert_eq!(&bytes[54..62], b"00000003", "content size");
        assert_eq!(&bytes[94..102], b"00000003", "name size");
        assert_eq!(&bytes[110..120], b"ab\0\0\0\0xyz\0"[..].as_ref());
        assert_eq!(&bytes[120..126], b"070701");
        assert_eq!(bytes.len() % 4, 0);
    }
}
