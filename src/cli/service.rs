//! `service`.

use clap::{Args, ValueEnum};

/// Print the service or crontab lines that tick this directory
///
/// A unit for systemd, a crontab line, or a property list for launchd. It contains the paths of
/// this program and of this state directory, quoted for that format. Nothing is installed: each
/// text begins with the name of its file.
#[derive(Debug, Args)]
pub struct ServiceArgs {
    /// The service manager
    pub manager: ServiceManager,
    /// For the service manager of this user, the default for all users but root
    #[arg(long)]
    pub user: bool,
    /// For the service manager of the machine, which runs the program as the owner of the directory
    #[arg(long, conflicts_with = "user")]
    pub system: bool,
    /// With systemd: a service that keeps running (`tick --follow`) instead of a timer
    #[arg(long)]
    pub follow: bool,
    /// Number of agents that are ticked at once
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub jobs: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ServiceManager {
    /// Units for systemd
    Systemd,
    /// A crontab, of a user or for /etc/cron.d
    Cron,
    /// A property list for launchd
    Launchd,
}
