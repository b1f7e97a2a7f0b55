//! The verbs for stores: list, status, remove, verify.

use std::path::PathBuf;

use serde_json::json;

use super::arguments::{ListArguments, NamedArguments};
use super::output::{ago, bytes, json, line, report};
use super::{DIFFERS, DONE, Failure};
use crate::store::file::path_of;
use crate::store::summary::{list as list_stores, summary};
use crate::store::verify::verify as verify_epoch;
use crate::store::{Access, Store, Summary};
use crate::tracker::control::{Answer, Request, send};
use crate::tracker::status::Status;

fn path(arguments: &NamedArguments) -> Result<PathBuf, Failure> {
    Ok(path_of(&arguments.place.store, arguments.name.as_str())?)
}

fn describe(summary: &Summary) -> String {
    let state = match (&summary.epoch, &summary.in_use_by) {
        (_, Some(holder)) => format!("in use by {holder}"),
        (Some(_), None) => "can be restored".to_owned(),
        (None, None) => "nothing to restore".to_owned(),
    };
    let epoch = summary.epoch.as_ref().map_or_else(String::new, |epoch| {
        format!(
            ", epoch {} of {} with {}",
            epoch.number,
            ago(epoch.committed_s),
            bytes(epoch.page_bytes)
        )
    });
    format!("{}: {state}{epoch}", summary.name)
}

pub fn list(arguments: &ListArguments) -> Result<u8, Failure> {
    let stores = list_stores(&arguments.place.store)?;
    if arguments.json {
        let values: Vec<_> = stores
            .iter()
            .map(|store| match store {
                Ok(summary) => json!(summary),
                Err(error) => json!({ "error": error.to_string() }),
            })
            .collect();
        json(&json!({ "stores": values }))?;
        return Ok(DONE);
    }
    if stores.is_empty() {
        line(&format!("no stores in {}", arguments.place.store.display()))?;
    }
    for store in &stores {
        match store {
            Ok(summary) => line(&describe(summary))?,
            Err(error) => line(&error.to_string())?,
        }
    }
    Ok(DONE)
}

pub fn status(arguments: &NamedArguments) -> Result<u8, Failure> {
    let path = path(arguments)?;
    let summary = summary(&path)?;
    let answer = send(&path, Request::Status)
        .map_err(|error| Failure::failed(format!("the tracker does not answer: {error}")))?;
    let status: Option<Status> = match answer {
        None => None,
        Some(Answer::Error(error)) => return Err(Failure::failed(error)),
        Some(Answer::Ok(value)) => Some(serde_json::from_value(value).map_err(|error| {
            Failure::failed(format!("the tracker is of another version: {error}"))
        })?),
    };
    if arguments.json {
        json(&json!({ "store": summary, "tracker": status }))?;
        return Ok(DONE);
    }
    line(&describe(&summary))?;
    let Some(status) = status else {
        line(match summary.in_use_by {
            Some(_) => "its tracker is another user's: only that user sees more",
            None => "no tracker",
        })?;
        return Ok(DONE);
    };
    let pids: Vec<String> = status.pids.iter().map(ToString::to_string).collect();
    line(&format!(
        "program {} (pid {}), {} in memory, tracked by process {} ({})",
        status.program,
        pids.join(", "),
        bytes(status.resident_bytes),
        status.tracker_pid,
        status.tracking,
    ))?;
    let budget = status.budget_bytes.map_or_else(|| "none".to_owned(), bytes);
    line(&format!(
        "recent maximum of dirty memory {} (budget {budget}); a persist would take {:.1} ms at {}/s",
        bytes(status.max_dirty_bytes.max(status.most_dirty_bytes)), // until 0.3
        status.persist_ms,
        bytes(status.bandwidth_bytes_per_s as u64),
    ))?;
    line(&format!(
        "{} rounds, {} over budget; {} epochs, {} put off, longest pause {:.1} ms; power: {}",
        status.sync.rounds,
        status.sync.rounds_over_budget,
        status.sync.epochs,
        status.sync.epochs_put_off,
        status.sync.longest_pause_ms,
        status.power,
    ))?;
    if status.throttle_percent > 0.0 {
        line(&format!(
            "stopped for {:.1} ms in all to keep the budget; at most {} % of its time",
            status.sync.throttled_ms, status.throttle_percent,
        ))?;
    }
    if status.sync.put_off_in_succession > 0 {
        line(&format!(
            "epochs postponed since the last one: {}; {} are dirty when the program is stopped, more than can be copied in \
             the pause for the time so far",
            status.sync.put_off_in_succession,
            bytes(status.sync.put_off_bytes),
        ))?;
    }
    if let Some(last) = &status.last {
        line(&report(last))?;
    }
    for obstacle in &status.obstacles {
        line(&format!("cannot be persisted: {obstacle}"))?;
    }
    Ok(DONE)
}

pub fn remove(arguments: &NamedArguments) -> Result<u8, Failure> {
    let path = path(arguments)?;
    // Whatever it holds: a damaged store can be removed, too, but not one in use.
    match Store::open(&path, arguments.name.as_str(), Access::Write, None) {
        Ok(mut store) => store.remove()?,
        Err(error @ crate::store::StoreError::Damaged { .. }) => {
            tracing::info!("{error}");
            std::fs::remove_file(&path)
                .map_err(|error| Failure::failed(format!("{}: {error}", path.display())))?;
        }
        Err(error) => return Err(error.into()),
    }
    if arguments.json {
        json(&json!({ "removed": path }))?;
    } else {
        line(&format!("{}: removed", arguments.name.as_str()))?;
    }
    Ok(DONE)
}

pub fn verify(arguments: &NamedArguments) -> Result<u8, Failure> {
    let path = path(arguments)?;
    let store = Store::open(&path, arguments.name.as_str(), Access::Read, None)?;
    let result = store.snapshot().map(|epoch| verify_epoch(&epoch));
    let passed_over = store.passed_over();
    let damaged = result.as_ref().is_some_and(|r| !r.damaged.is_empty());
    let lost = result.is_none() && !passed_over.is_empty();
    if arguments.json {
        json(&json!({
            "name": arguments.name.as_str(),
            "ok": !damaged && !lost,
            "passed_over": passed_over,
            "epoch": result,
        }))?;
    } else {
        for reason in passed_over {
            line(&format!("passed over: {reason}"))?;
        }
        match &result {
            None => line("nothing to restore")?,
            Some(result) => line(&format!(
                "epoch {}: {} compared in {} extents of {} spaces, {} pages differ",
                result.epoch,
                bytes(result.page_bytes),
                result.extents,
                result.spaces,
                result.damaged.len(),
            ))?,
        }
        let pages = result.iter().flat_map(|result| &result.damaged);
        for (space, address) in pages.take(20) {
            line(&format!("  space {space}, page {address:#x}"))?;
        }
    }
    Ok(if damaged || lost { DIFFERS } else { DONE })
}
