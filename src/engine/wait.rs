//! Waiting for another process.

use std::time::Duration;

use crate::error::Result;

const PAUSE: Duration = Duration::from_millis(5);

/// Waits until `is_so` returns true. Returns false if that takes too long.
///
/// `patience` limits the sum of the pauses, not the elapsed time, so that the other process gets
/// more time on a machine that is suspended or overloaded.
pub fn wait_until(patience: Duration, mut is_so: impl FnMut() -> Result<bool>) -> Result<bool> {
    let mut left = patience;
    while !is_so()? {
        if left.is_zero() {
            return Ok(false);
        }
        std::thread::sleep(PAUSE);
        left = left.saturating_sub(PAUSE);
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_loses_patience_for_a_machine_that_stands_still() {
        for (until, found) in [(4, true), (5, false)] {
            let mut looks = 0;
            let is_so = wait_until(PAUSE * 3, || {
                std::thread::sleep(PAUSE * 10);
                looks += 1;
                Ok(looks == until)
            });
            assert_eq!((is_so.unwrap(), looks), (found, 4));
        }
    }
}
