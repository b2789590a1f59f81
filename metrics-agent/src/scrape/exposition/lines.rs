//! Splits chunks into lines.

/// Holds the part of a line that the next chunk continues.
#[derive(Debug)]
pub(super) struct Lines {
    /// A longer line is skipped, as if the server had not written it.
    max_bytes: usize,
    partial: Vec<u8>,
    /// The line being received is already longer than allowed.
    too_long: bool,
}

impl Lines {
    pub(super) fn new(max_bytes: usize) -> Self {
        Self { max_bytes, partial: Vec::new(), too_long: false }
    }

    /// Forgets a partial line.
    pub(super) fn clear(&mut self) {
        self.partial.clear();
        self.too_long = false;
    }

    /// Calls `each` for every line that `chunk` ends, without its line feed.
    pub(super) fn feed(&mut self, chunk: &[u8], mut each: impl FnMut(&[u8])) {
        let mut rest = chunk;
        if !self.partial.is_empty() || self.too_long {
            let Some(end) = memchr::memchr(b'\n', rest) else { return self.append(rest) };
            self.append(&rest[..end]);
            self.end_partial(&mut each);
            rest = &rest[end + 1..];
        }
        let mut start = 0;
        for end in memchr::memchr_iter(b'\n', rest) {
            if end - start <= self.max_bytes {
                each(&rest[start..end]);
            }
            start = end + 1;
        }
        self.append(&rest[start..]);
    }

    /// Calls `each` for a last line without a line feed.
    pub(super) fn finish(&mut self, mut each: impl FnMut(&[u8])) {
        self.end_partial(&mut each);
    }

    fn append(&mut self, part: &[u8]) {
        if self.too_long || self.partial.len() + part.len() > self.max_bytes {
            self.too_long = true;
            self.partial.clear();
        } else {
            self.partial.extend_from_slice(part);
        }
    }

    fn end_partial(&mut self, each: &mut impl FnMut(&[u8])) {
        if !self.too_long && !self.partial.is_empty() {
            each(&self.partial);
        }
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: usize = 1000;

    fn lines(chunks: &[&[u8]]) -> Vec<Vec<u8>> {
        let mut seen = Vec::new();
        let mut lines = Lines::new(MAX);
        for chunk in chunks {
            lines.feed(chunk, |line| seen.push(line.to_vec()));
        }
        lines.finish(|line| seen.push(line.to_vec()));
        seen
    }

    #[test]
    fn lines_do_not_depend_on_where_chunks_end() {
        let text = b"one\n\ntwo three\nfour";
        let whole = lines(&[text]);
        assert_eq!(whole, [&b"one"[..], b"", b"two three", b"four"]);
        for first in 0..=text.len() {
            for second in first..=text.len() {
                let cut: Vec<_> = lines(&[&text[..first], &text[first..second], &text[second..]]);
                let blank =
                    |lines: &[Vec<u8>]| lines.iter().filter(|l| !l.is_empty()).cloned().collect::<Vec<_>>();
                assert_eq!(blank(&cut), blank(&whole), "cut at {first} and {second}");
            }
        }
    }

    #[test]
    fn an_endless_line_is_skipped_and_its_memory_is_bounded() {
        let mut seen = Vec::new();
        let mut lines = Lines::new(MAX);
        let block = vec![b'x'; 300];
        for _ in 0..100 {
            lines.feed(&block, |line| seen.push(line.to_vec()));
            assert!(lines.partial.len() <= MAX);
        }
        lines.feed(b"\nnext\n", |line| seen.push(line.to_vec()));
        assert_eq!(seen, [b"next"]);
    }

    #[test]
    fn a_line_too_long_within_one_chunk_is_skipped() {
        let mut text = vec![b'x'; MAX + 1];
        text.extend_from_slice(b"\nnext\n");
        assert_eq!(lines(&[&text]), [b"next"]);
    }
}
