//! placeholder
use super::session::Session;
use crate::cli;
use crate::error::{Result, Status};
pub fn doctor(_: &mut Session, _: cli::Doctor) -> Result<Status> {
    Ok(Status::Done)
}
