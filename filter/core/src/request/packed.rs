//! Lists of texts in one buffer, as Envoy hands them to a proxy-wasm filter.

/// Reads the items of a metadata list value that are UTF-8.
pub fn strings(bytes: &[u8]) -> Option<Vec<&str>> {
    Some(items(bytes)?.into_iter().filter_map(|item| core::str::from_utf8(item).ok()).collect())
}

/// Reads the items of a metadata list value.
///
/// Envoy writes pairs, each item a key with an empty value: a little-endian `u32` count, then for each pair
/// the sizes of key and value (`u32` each), then for each pair key and value, each followed by a zero byte.
/// The whole may be padded with zero bytes. An item that is a number, a boolean or a nested value is its
/// bytes. `None` if the bytes are not such a list.
pub fn items(bytes: &[u8]) -> Option<Vec<&[u8]>> {
    let (count, rest) = split_u32(bytes)?;
    if count > rest.len() / 8 {
        return None;
    }
    let (mut sizes, mut data) = rest.split_at(count * 8);
    let mut items = Vec::with_capacity(count);
    for _ in 0..count {
        let (key_size, after_key_size) = split_u32(sizes)?;
        let (value_size, after) = split_u32(after_key_size)?;
        sizes = after;
        let (key, after_key) = split_terminated(data, key_size)?;
        let (_, after) = split_terminated(after_key, value_size)?;
        data = after;
        items.push(key);
    }
    data.iter().all(|&byte| byte == 0).then_some(items)
}

/// Writes such a list.
pub fn list(items: &[&[u8]]) -> Vec<u8> {
    let u32_of = |length: usize| u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes();
    let mut bytes = u32_of(items.len()).to_vec();
    for item in items {
        bytes.extend(u32_of(item.len()));
        bytes.extend(u32_of(0));
    }
    for item in items {
        bytes.extend_from_slice(item);
        bytes.extend([0, 0]);
    }
    bytes
}

fn split_u32(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let (number, rest) = bytes.split_first_chunk()?;
    Some((usize::try_from(u32::from_le_bytes(*number)).ok()?, rest))
}

fn split_terminated(bytes: &[u8], size: usize) -> Option<(&[u8], &[u8])> {
    let (text, rest) = bytes.split_at_checked(size)?;
    let (terminator, rest) = rest.split_first()?;
    (*terminator == 0).then_some((text, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test;

    #[test]
    fn items_are_read_in_order() {
        let bytes = list(&[b"10.0.0.1:8000", b"", b"x"]);
        assert_eq!(strings(&bytes).unwrap(), ["10.0.0.1:8000", "", "x"]);
    }

    #[test]
    fn an_empty_list_padded_to_thirty_bytes_is_a_list() {
        assert_eq!(strings(&[0; 30]).unwrap(), [""; 0]);
    }

    #[test]
    fn items_that_are_not_text_are_left_out() {
        assert_eq!(strings(&list(&[b"a", &[0xff, 0xfe], b"b"])).unwrap(), ["a", "b"]);
    }

    #[test]
    fn text_is_no_list() {
        for text in ["", "a", "10.0.0.1:8000", "10.0.0.1:8000,10.0.0.2:8000"] {
            assert_eq!(strings(text.as_bytes()), None, "{text:?}");
        }
    }

    #[test]
    fn what_is_cut_short_or_lies_about_its_size_is_no_list() {
        let bytes = list(&[b"10.0.0.1:8000", b"10.0.0.2:8000"]);
        for length in 0..bytes.len() {
            assert_eq!(strings(&bytes[..length]), None, "cut to {length}");
        }
        for at in 0..12 {
            let mut lying = bytes.clone();
            lying[at] ^= 0x41;
            assert_eq!(strings(&lying), None, "byte {at} changed");
        }
        assert_eq!(strings(&[0xff; 64]), None);
    }
}
