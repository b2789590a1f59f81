//! The resolution of an image in base64, read from the file's header.
//!
//! The three formats are those that the EPP decodes; an image of another format has no resolution. Bytes are
//! decoded one by one when they are needed, so that an image of megabytes takes no more time than its header.

use super::Resolution;

/// The resolution of a `data:image/…;base64,…` URL.
pub(crate) fn resolution_of_data_url(url: &str) -> Option<Resolution> {
    let rest = url.strip_prefix("data:image/")?;
    let (_, data) = rest.split_once("base64,")?;
    resolution_of_base64(data)
}

/// The resolution of a PNG, JPEG or GIF file in base64.
pub(crate) fn resolution_of_base64(data: &str) -> Option<Resolution> {
    let mut file = Decoded { text: data.as_bytes(), bits: 0, bit_count: 0 };
    let found = match file.array()? {
        [0xff, 0xd8, 0xff] => jpeg(&mut file),
        [0x89, b'P', b'N'] => png(&mut file),
        [b'G', b'I', b'F'] => gif(&mut file),
        _ => None,
    };
    found.filter(|resolution| resolution.width > 0 && resolution.height > 0)
}

/// Signature, length of the first chunk, its name `IHDR`, width, height.
fn png(file: &mut Decoded<'_>) -> Option<Resolution> {
    let start: [u8; 13] = file.array()?;
    if &start != b"G\r\n\x1a\n\0\0\0\x0dIHDR" {
        return None;
    }
    let width = u32::from_be_bytes(file.array()?);
    Some(Resolution { width, height: u32::from_be_bytes(file.array()?) })
}

/// Version, width, height.
fn gif(file: &mut Decoded<'_>) -> Option<Resolution> {
    let version: [u8; 3] = file.array()?;
    if ![*b"87a", *b"89a"].contains(&version) {
        return None;
    }
    let width = u16::from_le_bytes(file.array()?).into();
    Some(Resolution { width, height: u16::from_le_bytes(file.array()?).into() })
}

/// Segments, each with a marker and a length, up to the frame header: precision, height, width. The first
/// marker's 0xff has been read.
fn jpeg(file: &mut Decoded<'_>) -> Option<Resolution> {
    loop {
        let mut marker = file.next()?;
        while marker == 0xff {
            marker = file.next()?;
        }
        match marker {
            // Start of image, restart and stand-alone markers carry no length.
            0x01 | 0xd0..=0xd8 => {}
            // The three frame types that the EPP decodes.
            0xc0..=0xc2 => {
                let [_, _, _, h1, h0, w1, w0] = file.array()?;
                let height = u16::from_be_bytes([h1, h0]).into();
                return Some(Resolution { width: u16::from_be_bytes([w1, w0]).into(), height });
            }
            // End of image, or the image's data, before any frame header.
            0xd9 | 0xda => return None,
            _ => {
                let length = u16::from_be_bytes(file.array()?);
                for _ in 0..length.checked_sub(2)? {
                    file.next()?;
                }
            }
        }
        while file.next()? != 0xff {}
    }
}

/// The bytes of a base64 text (standard alphabet, line breaks allowed), up to the first character that is not
/// base64.
struct Decoded<'t> {
    text: &'t [u8],
    bits: u32,
    bit_count: u32,
}

impl Decoded<'_> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        for byte in &mut bytes {
            *byte = self.next()?;
        }
        Some(bytes)
    }
}

impl Iterator for Decoded<'_> {
    type Item = u8;

    fn next(&mut self) -> Option<u8> {
        while self.bit_count < 8 {
            let (&letter, rest) = self.text.split_first()?;
            let sextet = match letter {
                b'A'..=b'Z' => letter - b'A',
                b'a'..=b'z' => letter - b'a' + 26,
                b'0'..=b'9' => letter - b'0' + 52,
                b'+' => 62,
                b'/' => 63,
                b'\r' | b'\n' => {
                    self.text = rest;
                    continue;
                }
                _ => return None,
            };
            self.text = rest;
            self.bits = (self.bits << 6) | u32::from(sextet);
            self.bit_count += 6;
        }
        self.bit_count -= 8;
        let [.., byte] = (self.bits >> self.bit_count).to_be_bytes();
        Some(byte)
    }
}
