//! Forms with a model: the input is a content type, a line's end, and a body.
//!
//! Each beginning of a form that can be read can be read too, and has the form's model or none; and renaming
//! a model changes nothing else of a form.
#![no_main]

use endpoint_picker::policy::name_model_in_form;
use endpoint_picker::request::body::{Api, Body, BodyError, Options, complete};
use libfuzzer_sys::fuzz_target;

#[path = "../parts/first_line.rs"]
mod first_line;
use first_line::first_line;

const OTHER: &str = "other \"model\"\\\n";

fn read<'a>(form: &'a [u8], options: &Options<'_>) -> Result<Body<'a>, BodyError> {
    Body::read_bytes(form, Api::ModelOnly, options)
}

fuzz_target!(|input: &[u8]| {
    let Some((content_type, form)) = first_line(input) else { return };
    let options = Options { content_type: Some(content_type), ..Options::default() };
    let Ok(whole) = read(form, &options) else { return };
    if !whole.is_form {
        return;
    }
    for cut in 0..form.len().min(1_000) {
        let Some(beginning) = complete(form[..cut].to_vec(), Api::ModelOnly, &options) else { continue };
        let model = read(&beginning, &options).expect("as good as the whole").model;
        assert!(model.is_none() || model == whole.model);
    }
    let renamed = name_model_in_form(form, whole.model_span.clone(), OTHER);
    let Some(place) = whole.model_span else { return assert_eq!(renamed, form) };
    assert_eq!(read(&renamed, &options).expect("as good as it was").model.as_deref(), Some(OTHER));
    let behind = renamed.len() - (form.len() - place.end);
    assert_eq!((&renamed[..place.start], &renamed[behind..]), (&form[..place.start], &form[place.end..]));
});
