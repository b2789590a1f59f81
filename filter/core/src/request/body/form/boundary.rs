//! The boundary between the parts of a form, from the request's content type.

use super::parameters::{kind, parameters};
use super::{BodyError, LINE_END};

/// The most bytes of a boundary (RFC 2046).
const LONGEST: usize = 70;

/// The text between two parts.
pub(in crate::request::body) struct Boundary<'h>(&'h str);

/// Whether the body of a request with this content type is a form.
pub(in crate::request::body) fn is_form(content_type: &str) -> bool {
    kind(content_type).eq_ignore_ascii_case("multipart/form-data")
}

impl<'h> Boundary<'h> {
    pub(in crate::request::body) fn of(content_type: &'h str) -> Result<Self, BodyError> {
        Self::read(content_type).map_err(|cause| BodyError::NotAForm { cause })
    }

    fn read(content_type: &'h str) -> Result<Self, &'static str> {
        let mut boundary = None;
        for parameter in parameters(content_type) {
            let parameter = parameter.ok_or("its content type is ambiguous")?;
            match &*parameter.name.to_ascii_lowercase() {
                "boundary" if boundary.is_some() => return Err("its content type has several boundaries"),
                "boundary" => boundary = Some(parameter.value),
                // Servers decode the fields by it.
                "charset" if !parameter.value.eq_ignore_ascii_case("utf-8") => {
                    return Err("its content type has a charset other than utf-8");
                }
                // A parameter in parts or with a charset of its own (RFC 2231).
                name if name.contains('*') => return Err("its content type is ambiguous"),
                _ => {}
            }
        }
        let boundary = boundary.ok_or("its content type has no boundary")?;
        let is_valid = (1..=LONGEST).contains(&boundary.len())
            && boundary.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"'()+_,-./:=? ".contains(&byte))
            && !boundary.ends_with(' ');
        if is_valid { Ok(Self(boundary)) } else { Err("its boundary has more than 70 or invalid characters") }
    }

    /// The bytes between two parts.
    pub(super) fn delimiter(&self) -> Vec<u8> {
        [LINE_END, b"--", self.0.as_bytes()].concat()
    }
}
