//! What people read of a run: a line per scenario, and a table at the end.

use std::collections::{BTreeMap, BTreeSet};

use crate::runner::Verdict;

/// One line for a verdict, followed by what was wrong.
pub fn line(verdict: &Verdict) -> String {
    let word = if verdict.passed() { "ok    " } else { "FAILED" };
    let Verdict {
        scenario,
        variant,
        backend,
        failures,
        untried,
    } = verdict;
    let mut text = format!("{word} {backend} {scenario} ({variant})\n");
    for failure in failures {
        for line in failure.to_string().lines() {
            text.extend(["  ", line, "\n"]);
        }
    }
    for what in untried {
        text.extend(["  not tried ", what, "\n"]);
    }
    text
}

/// A table of scenarios by backends, with sums.
pub fn table(verdicts: &[Verdict]) -> String {
    let backends: BTreeSet<&str> = verdicts.iter().map(|v| &*v.backend).collect();
    let mut rows: BTreeMap<&str, BTreeMap<&str, Vec<String>>> = BTreeMap::new();
    for verdict in verdicts {
        let word = match (verdict.passed(), verdict.untried.is_empty()) {
            (true, true) => "ok",
            (true, false) => "partly",
            (false, _) => "FAILED",
        };
        let cell = rows
            .entry(&verdict.scenario)
            .or_default()
            .entry(&verdict.backend)
            .or_default();
        cell.push(format!("{} {word}", verdict.variant));
    }
    let width = rows.keys().map(|name| name.len()).max().unwrap_or_default();
    let row = |name: &str, cell: &dyn Fn(&str) -> String| {
        let cells = backends.iter().map(|b| format!("  {:<18}", cell(b)));
        let line = format!("{name:<width$}{}", cells.collect::<String>());
        line.trim_end().to_owned() + "\n"
    };
    let mut text = row("", &str::to_owned);
    for (name, cells) in &rows {
        text += &row(name, &|b| {
            cells.get(b).map_or("-".to_owned(), |c| c.join(" "))
        });
    }
    let failed = verdicts.iter().filter(|v| !v.passed()).count();
    let untried: usize = verdicts.iter().map(|v| v.untried.len()).sum();
    let runs = verdicts.len();
    let scenarios = rows.len();
    text + &format!(
        "{scenarios} scenarios, {runs} runs, {failed} failed, {untried} probes not tried\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runner::Failure;
    use crate::scenario::Variant;

    fn verdict(scenario: &str, variant: Variant, failures: Vec<Failure>) -> Verdict {
        let scenario = scenario.to_owned();
        Verdict {
            scenario,
            variant,
            backend: "oracle".to_owned(),
            failures,
            untried: Vec::new(),
        }
    }

    #[test]
    fn a_failed_probe_shows_expected_and_seen() {
        let failure = Failure::Probe {
            what: "at the start, pod to 10.96.0.10:80 tcp".to_owned(),
            expected: "refused".to_owned(),
            seen: "dropped".to_owned(),
        };
        let text = line(&verdict("no-endpoints", Variant::V4, vec![failure]));
        let expected = "FAILED oracle no-endpoints (v4)
  at the start, pod to 10.96.0.10:80 tcp
      expected: refused
      seen:     dropped
";
        assert_eq!(text, expected);
    }

    #[test]
    fn the_table_has_a_row_per_scenario_and_sums() {
        let broken = Failure::Broken("no kernel".to_owned());
        let mut partly = verdict("three", Variant::V4, Vec::new());
        partly.untried.push("no sctp".to_owned());
        let text = table(&[
            verdict("one", Variant::V4, Vec::new()),
            verdict("one", Variant::V6, vec![broken]),
            partly,
        ]);
        let expected = "       oracle
one    v4 ok v6 FAILED
three  v4 partly
2 scenarios, 3 runs, 1 failed, 1 probes not tried
";
        assert_eq!(text, expected);
    }
}
