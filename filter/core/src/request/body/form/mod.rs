//! The model in a form (`multipart/form-data`, RFC 7578): uploads of audio and images name theirs in one.
//!
//! The reader is strict: what servers read in several ways is refused, because a server could read another model than the picker. It
//! copies nothing, and looks at every byte once.

mod boundary;
mod parameters;
mod part;

use core::ops::Range;
use std::borrow::Cow;

use memchr::memmem::{self, Finder};

use super::{Body, BodyError};
pub(super) use boundary::{Boundary, is_form};
use part::Head;

const LINE_END: &[u8] = b"\r\n";

/// The field with the model.
const MODEL: &str = "model";

/// Reads the whole body of a form.
pub(super) fn read<'a>(body: &'a [u8], boundary: &Boundary<'_>) -> Result<Body<'a>, BodyError> {
    let mut model = None;
    read_parts(body, boundary, &mut model).map_err(|cause| BodyError::NotAForm { cause })?;
    let Some(Field { text, place }) = model else { return Ok(Body { is_form: true, ..Body::default() }) };
    let model = (!text.is_empty()).then_some(Cow::Borrowed(text));
    Ok(Body { is_form: true, model, model_span: Some(place), ..Body::default() })
}

/// Cuts the beginning of a form behind its last complete part, and ends the form there. `None` if no part is complete.
pub(super) fn complete(mut beginning: Vec<u8>, boundary: &Boundary<'_>) -> Option<Vec<u8>> {
    let delimiter = [boundary.delimiter(), LINE_END.to_vec()].concat();
    let last = memmem::rfind(&beginning, &delimiter)?;
    beginning.truncate(last + delimiter.len() - LINE_END.len());
    beginning.extend(b"--");
    Some(beginning)
}

/// The value of a field, and its offsets in the body.
struct Field<'a> {
    text: &'a str,
    place: Range<usize>,
}

fn read_parts<'a>(
    body: &'a [u8],
    boundary: &Boundary<'_>,
    model: &mut Option<Field<'a>>,
) -> Result<(), &'static str> {
    let delimiter = boundary.delimiter();
    let finder = Finder::new(&delimiter);
    // The first delimiter has no line end before it.
    let first = delimiter.strip_prefix(LINE_END).unwrap_or_default();
    let mut rest =
        body.strip_prefix(first).ok_or("it does not begin with the boundary of its content type")?;
    loop {
        if rest.starts_with(b"--") {
            return Ok(());
        }
        let part =
            rest.strip_prefix(LINE_END).ok_or("a boundary is followed by something else than a line end")?;
        let end = finder.find(part).ok_or("a part has no end")?;
        let (whole, behind) = part.split_at_checked(end).ok_or("a part has no end")?;
        let (head, value) = Head::read(whole)?;
        if head.is_called(MODEL) {
            if model.is_some() {
                return Err("it has several fields called model");
            }
            let text = head.text(value)?;
            let end = body.len() - behind.len();
            *model = Some(Field { text, place: end - value.len()..end });
        }
        rest = behind.strip_prefix(&*delimiter).unwrap_or_default();
    }
}
