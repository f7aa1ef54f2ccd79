//! Live screen of `fastlane top`.

use std::io;

use fastlane::session::Client;
use fastlane_terminal::Page;
use fastlane_terminal::screen::Source;

use super::rates::Rates;
use super::sample::Sample;
use super::table;

/// Application of which a screen shows the rates.
pub(super) struct Watched<'a> {
    client: &'a Client,
    before: Option<Sample>,
}

impl<'a> Watched<'a> {
    pub(super) const fn new(client: &'a Client) -> Self {
        Self { client, before: None }
    }
}

impl Source for Watched<'_> {
    fn page(&mut self) -> io::Result<Page> {
        let sample = Sample::take(self.client);
        let rates = Rates::between(self.before.as_ref().unwrap_or(&sample), &sample);
        self.before = Some(sample);
        Ok(table::page(&self.client.application, &rates))
    }

    fn is_alive(&mut self) -> bool {
        self.client.is_alive()
    }
}
