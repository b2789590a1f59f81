//! One request on its way through the filter, from its head to the end of its answer.

mod answer;
mod answer_tokens;
mod deciding;
mod entering;
mod events;
mod head;
mod pick_headers;
mod queue_place;
mod response;
mod resuming;
mod shadow;
mod shadowed_request;
mod steps;
mod subset_hint;
mod withheld_body;

pub use steps::{Exchange, Flow};
pub use withheld_body::refuse_withheld_body;
