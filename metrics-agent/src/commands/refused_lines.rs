//! The refused objects and files as lines of text.

use core::fmt;

use crate::api::pools::refused::{RefusedObject, RefusedObjects};
use crate::commands::columns::printable;

/// One line for each, after an empty one.
impl fmt::Display for RefusedObjects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.count > 0 {
            writeln!(f)?;
        }
        for RefusedObject { object, reasons, earlier_in_force } in &self.objects {
            let reasons: Vec<_> = reasons.iter().map(|reason| printable(&one_line(reason))).collect();
            let in_force = if *earlier_in_force {
                "its last valid version stays in force"
            } else {
                "nothing of it is in force"
            };
            writeln!(f, "refused: {}: {}; {in_force}", printable(object), reasons.join("; "))?;
        }
        match self.count.saturating_sub(self.objects.len()) {
            0 => Ok(()),
            more => writeln!(f, "refused: {more} more"),
        }
    }
}

/// A reason, which may quote lines of YAML.
fn one_line(reason: &str) -> String {
    reason.split_whitespace().collect::<Vec<_>>().join(" ")
}
