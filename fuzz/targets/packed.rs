//! Lists as Envoy hands them to the filter, and the subset hint in them.
//!
//! Lists that Envoy would have written are read as they were.
#![no_main]

use endpoint_picker::request::packed::strings;
use endpoint_picker::request::subset::Subset;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    Subset::from_metadata(input);
    if let Some(items) = strings(input) {
        assert_eq!(strings(&packed(&items)), Some(items));
    }
    let items: Vec<&str> =
        input.split(|&byte| byte == 0).filter_map(|item| core::str::from_utf8(item).ok()).collect();
    assert_eq!(strings(&packed(&items)).as_ref(), Some(&items));
});

/// Pairs of an item and nothing: the number of them, the sizes, the texts with a zero byte after each.
fn packed(items: &[&str]) -> Vec<u8> {
    let number = |number: usize| u32::try_from(number).expect("few enough").to_le_bytes();
    let mut bytes = number(items.len()).to_vec();
    for item in items {
        bytes.extend(number(item.len()));
        bytes.extend([0; 4]);
    }
    for item in items {
        bytes.extend(item.as_bytes());
        bytes.extend([0, 0]);
    }
    bytes
}
