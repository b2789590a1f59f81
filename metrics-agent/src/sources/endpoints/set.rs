//! One set of endpoints.

use endpoint_picker::pool::{Endpoint, Pool};

/// The newest valid endpoint set; before the first one, why there is none.
pub type EndpointSet = Result<Vec<Endpoint>, String>;

/// All endpoints together, if their names and addresses are unique.
pub(super) fn combine(fixed: &[Endpoint], found: &[Endpoint], max: usize) -> EndpointSet {
    let endpoints = [fixed, found].concat();
    if endpoints.len() > max {
        return Err(format!("{} endpoints; at most {max} are allowed (--max-endpoints)", endpoints.len()));
    }
    match Pool::new(String::new(), endpoints.clone()) {
        Ok(_) => Ok(endpoints),
        Err(error) => Err(error.to_string()),
    }
}
