//! The agent's live page, in a real browser.

mod groups;
mod layout;
mod live;
mod queue;
mod shadow_fact;
mod shared_changes;
mod smooth;
mod table;
