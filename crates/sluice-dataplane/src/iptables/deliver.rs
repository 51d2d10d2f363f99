//! Carries a part out in as few calls as the tool bears, and finds out which service port is at
//! fault when it refuses.

use std::io::{self, Write};

use super::name::Table;
use super::tool::{Backend, Tool, ToolError};
use super::tx::{LeftOut, Part, Step, Unit};

/// Chains that one call may name with nf_tables: the tool keeps them in a sorted list and looks
/// for each from its beginning, so twice as many take four times as long.
const CHAINS_PER_CALL: usize = 1_000;
/// Single steps per call, two of which may be about one chain.
const STEPS_PER_CALL: usize = 1_000;

/// Carries the part out. What was left out is pushed as it is found, so that it is known even
/// where something else fails for good afterwards.
pub(super) fn deliver(
    tool: &Tool,
    part: &Part,
    left_out: &mut Vec<LeftOut>,
) -> Result<(), Failure> {
    let units: Vec<&Unit> = part.units.iter().collect();
    for call in calls(tool.backend(), part, &units) {
        let mut job = Job {
            tool,
            part,
            left_out,
        };
        job.run(call)?;
    }
    Ok(())
}

/// A call that failed as a whole.
#[derive(Debug)]
pub(super) struct Failure {
    /// The line at fault, where it is one that no service port can be blamed for.
    pub(super) line: Option<String>,
    /// The tool's reason.
    pub(super) source: ToolError,
}

/// What one call of the tool carries out.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Call<'a> {
    first: &'a [Step],
    units: &'a [&'a Unit],
    last: &'a [Step],
}

fn calls<'a>(backend: Backend, part: &'a Part, units: &'a [&'a Unit]) -> Vec<Call<'a>> {
    let whole = Call {
        first: &part.first,
        units,
        last: &part.last,
    };
    let weight: usize = units.iter().map(|unit| unit.weight()).sum();
    let small = weight <= CHAINS_PER_CALL && part.first.len() + part.last.len() <= STEPS_PER_CALL;
    if backend == Backend::Legacy || small {
        // One copy of the table out and in, whatever changes.
        return vec![whole];
    }
    let steps = |steps: &'a [Step]| steps.chunks(STEPS_PER_CALL);
    let first = steps(whole.first).map(|first| Call {
        first,
        ..Call::default()
    });
    let last = steps(whole.last).map(|last| Call {
        last,
        ..Call::default()
    });
    let units = batches(units).into_iter().map(|units| Call {
        units,
        ..Call::default()
    });
    first.chain(units).chain(last).collect()
}

fn batches<'a>(mut units: &'a [&'a Unit]) -> Vec<&'a [&'a Unit]> {
    let mut batches = Vec::new();
    while !units.is_empty() {
        let mut weight = 0;
        let fits = |unit: &&&Unit| {
            weight += unit.weight();
            weight <= CHAINS_PER_CALL
        };
        let count = units.iter().take_while(fits).count().max(1);
        let (batch, rest) = units.split_at(count);
        batches.push(batch);
        units = rest;
    }
    batches
}

struct Job<'a> {
    tool: &'a Tool,
    part: &'a Part,
    left_out: &'a mut Vec<LeftOut>,
}

impl Job<'_> {
    /// Runs a call; what is refused is taken out, by the line that the tool names, or by halves
    /// where it names none of a service port's.
    fn run(&mut self, call: Call<'_>) -> Result<(), Failure> {
        let mut spans = Spans::default();
        let outcome = self
            .tool
            .restore(|out| self.write(&call, &mut Sink::new(out, &mut spans)));
        let source = match outcome {
            Ok(()) => return Ok(()),
            Err(source) => source,
        };
        let ToolError::Refused { line, words, .. } = &source else {
            return Err(Failure { line: None, source });
        };
        let blamed = line.and_then(|line| spans.owner(line));
        let text = line.and_then(|line| self.text(&call, line));
        match blamed {
            Some(Owner::Unit(index)) => {
                let (before, rest) = call.units.split_at(index);
                let Some((culprit, after)) = rest.split_first() else {
                    return Err(Failure { line: text, source });
                };
                self.leave_out(culprit, text, words);
                let units: Vec<&Unit> = before.iter().chain(after).copied().collect();
                self.run(Call {
                    units: &units,
                    ..call
                })
            }
            Some(Owner::Node) => Err(Failure { line: text, source }),
            None => self.halves(call, source),
        }
    }

    fn halves(&mut self, call: Call<'_>, source: ToolError) -> Result<(), Failure> {
        let Call { first, units, last } = call;
        let steps = !first.is_empty() || !last.is_empty();
        match units {
            [] => Err(Failure { line: None, source }),
            [one] if !steps => {
                self.leave_out(one, None, &source.to_string());
                Ok(())
            }
            // The steps around the units alone first: they may be at fault themselves.
            _ if steps => {
                self.run(Call {
                    first,
                    ..Call::default()
                })?;
                self.run(Call {
                    units,
                    ..Call::default()
                })?;
                self.run(Call {
                    last,
                    ..Call::default()
                })
            }
            _ => {
                let (a, b) = units.split_at(units.len() / 2);
                self.run(Call {
                    units: a,
                    ..Call::default()
                })?;
                self.run(Call {
                    units: b,
                    ..Call::default()
                })
            }
        }
    }

    fn leave_out(&mut self, unit: &Unit, line: Option<String>, reason: &str) {
        self.left_out.push(LeftOut {
            family: self.part.family,
            key: unit.key.clone(),
            line,
            reason: reason.to_owned(),
        });
    }

    /// Table after table; tables without a step are not named, so that they are not touched.
    fn write(&self, call: &Call<'_>, sink: &mut Sink<'_>) -> io::Result<()> {
        for table in Table::ALL {
            sink.steps(table, Owner::Node, call.first)?;
            if table != Table::Mangle {
                for (index, unit) in call.units.iter().enumerate() {
                    sink.steps(table, Owner::Unit(index), &self.part.steps(unit))?;
                }
            }
            sink.steps(table, Owner::Node, call.last)?;
            sink.commit()?;
        }
        Ok(())
    }

    /// The line with this number, counted from 1. It is written once more for that: nobody keeps
    /// the text of a call.
    fn text(&self, call: &Call<'_>, number: usize) -> Option<String> {
        let mut spans = Spans {
            wanted: Some(number),
            ..Spans::default()
        };
        self.write(call, &mut Sink::new(&mut io::sink(), &mut spans))
            .ok()?;
        spans.found
    }
}

/// Who a line belongs to.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Owner {
    /// The node as a whole.
    Node,
    /// A unit, by its place in the call.
    Unit(usize),
}

/// Which lines of a call belong to whom.
#[derive(Debug, Default)]
struct Spans {
    /// First line of each run, in order.
    starts: Vec<(usize, Option<Owner>)>,
    lines: usize,
    wanted: Option<usize>,
    found: Option<String>,
}

impl Spans {
    fn owner(&self, line: usize) -> Option<Owner> {
        let run = self
            .starts
            .partition_point(|(start, _)| *start <= line)
            .checked_sub(1)?;
        self.starts[run].1
    }
}

struct Sink<'a> {
    out: &'a mut dyn Write,
    spans: &'a mut Spans,
    open: Option<Table>,
}

impl<'a> Sink<'a> {
    fn new(out: &'a mut dyn Write, spans: &'a mut Spans) -> Sink<'a> {
        Sink {
            out,
            spans,
            open: None,
        }
    }

    fn steps(&mut self, table: Table, owner: Owner, steps: &[Step]) -> io::Result<()> {
        let mut of_table = steps.iter().filter(|step| step.table == table).peekable();
        if of_table.peek().is_none() {
            return Ok(());
        }
        if self.open != Some(table) {
            self.spans.starts.push((self.spans.lines + 1, None));
            self.line(&format_args!("*{table}"))?;
            self.open = Some(table);
        }
        self.spans.starts.push((self.spans.lines + 1, Some(owner)));
        of_table.try_for_each(|step| self.line(&step.line))
    }

    fn commit(&mut self) -> io::Result<()> {
        if self.open.take().is_some() {
            self.spans.starts.push((self.spans.lines + 1, None));
            self.line(&"COMMIT")?;
        }
        Ok(())
    }

    fn line(&mut self, line: &dyn std::fmt::Display) -> io::Result<()> {
        self.spans.lines += 1;
        if self.spans.wanted == Some(self.spans.lines) {
            self.spans.found = Some(line.to_string());
        }
        writeln!(self.out, "{line}")
    }
}

/// Carries single steps out; for cleaning up.
pub(super) fn restore_steps(tool: &Tool, steps: &[Step]) -> Result<(), ToolError> {
    let mut spans = Spans::default();
    tool.restore(|out| {
        let mut sink = Sink::new(out, &mut spans);
        for table in Table::ALL {
            sink.steps(table, Owner::Node, steps)?;
            sink.commit()?;
        }
        Ok(())
    })
}

/// Steps in runs that the tool bears.
pub(super) fn chunks(backend: Backend, steps: &[Step]) -> impl Iterator<Item = &[Step]> {
    let most = match backend {
        Backend::Nft => STEPS_PER_CALL,
        // One copy of the table out and in, whatever changes.
        Backend::Legacy => usize::MAX,
    };
    steps.chunks(most)
}
