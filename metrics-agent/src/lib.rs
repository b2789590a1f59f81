//! Scrapes model servers and hands the endpoint picker filter one consistent snapshot.
//!
//! [`discovery`] says which endpoints there are, [`manifests`] which pools they make and what is wanted for each; [`scrape`] keeps one task for each endpoint, which reads its text with
//! [`exposition`] in the words of its [`dialect`] and writes the result into its [`slot`] on the [`board`]; the board is published
//! version by version ([`published`]) and handed out by [`server`]. [`agent`] puts these together. A reading is
//! stamped on the agent's own [`clock`] and travels with its age. [`credentials`] are followed as their files change. [`tasks`] ends the
//! agent when one of its long-running tasks ends; [`logging`] never holds one up.
//!
//! People see the pools through [`telemetry`] and the live [`page`], together with what proxies [`report`]; [`status`] is what they see. Commands
//! [`fetch`] it, and [`explain`] decides a recorded request again.

pub mod agent;
pub mod board;
pub mod clock;
mod columns;
pub mod credentials;
pub mod dialect;
pub mod discovery;
pub mod eds;
pub mod explain;
pub mod exposition;
pub mod fetch;
pub mod file_limits;
pub mod flags;
mod follower;
pub mod logging;
mod look;
pub mod manifests;
pub mod page;
pub mod published;
pub mod report;
mod restart;
pub mod scrape;
pub mod served;
pub mod server;
pub mod slot;
pub mod status;
pub mod tasks;
pub mod telemetry;
