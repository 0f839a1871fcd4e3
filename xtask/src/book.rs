//! The book: `cargo xtask book` gathers the pages that docs/SUMMARY.md lists in target/book/src, has mdBook make HTML of them in
//! target/book/html, and follows every link of that HTML inside the book.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};
use std::process::Command;

use crate::tidy::links;

/// Which pages the book has, in their order. Its links are relative to docs/, like those of every page there.
pub const SUMMARY: &str = "docs/SUMMARY.md";

/// Pages of one room each, which need no line of the summary: the book has all of this folder, by name.
const INVARIANTS: &str = "docs/invariants/";

/// The version that `scripts/setup.sh book` installs begins so.
const MDBOOK: &str = "mdbook v0.5.";

/// Builds the book and checks its links.
///
/// # Errors
/// Says that mdBook is missing, what it refuses, or which links lead nowhere.
pub fn build(root: &Path) -> Result<String, Vec<String>> {
    let folder = clean(&root.join("target/book"));
    if folder.exists() {
        std::fs::remove_dir_all(&folder).map_err(|error| vec![format!("{}: {error}", folder.display())])?;
    }
    let pages = gather(root, &folder.join("src"))?;
    run_mdbook(root, &folder)?;
    let html = folder.join("html");
    let problems = dead_links(&html)?;
    if problems.is_empty() {
        Ok(format!("book: {} pages in {}", pages.len(), html.display()))
    } else {
        Err(problems)
    }
}

/// Pages of docs/ that no reader of the book would find, and lines of the summary that lead nowhere.
pub fn unlisted(summary: &str, files: &[&str]) -> Vec<String> {
    let listed: BTreeSet<String> = pages_of(summary).into_iter().collect();
    let is_page = |name: &&str| {
        name.starts_with("docs/")
            && name.ends_with(".md")
            && *name != SUMMARY
            && !name.starts_with(INVARIANTS)
    };
    let missing = files.iter().copied().filter(is_page).filter(|name| !listed.contains(*name));
    missing.map(|name| format!("{name}: not in {SUMMARY}, so the book lacks it")).collect()
}

/// The pages of the summary, as paths from the root.
fn pages_of(summary: &str) -> Vec<String> {
    links(summary).map(|link| plain(&Path::new("docs").join(link))).collect()
}

/// Copies pages to where mdBook wants them, at their places in the tree, with the files that they link to.
fn gather(root: &Path, into: &Path) -> Result<Vec<String>, Vec<String>> {
    let summary = with_rooms(&read(&root.join(SUMMARY))?, &rooms(root)?);
    let pages = pages_of(&summary);
    let listed: BTreeSet<&str> = pages.iter().map(String::as_str).collect();
    for page in &pages {
        let text = read(&root.join(page))?;
        let folder = Path::new(page).parent().expect("a page is a file");
        for link in links(&text) {
            let target = plain(&folder.join(link.split('#').next().unwrap_or_default()));
            let is_far = link.contains("://") || link.starts_with('#');
            if is_far || listed.contains(target.as_str()) || !root.join(&target).is_file() {
                continue;
            }
            // mdBook copies files that are no pages, and leaves out pages that the summary lacks: those come as text.
            write(&into.join(shown_as(&target, false)), &read_bytes(&root.join(&target))?)?;
        }
        write(&into.join(shown_as(page, true)), relinked(&text, folder, &listed).as_bytes())?;
    }
    for drawing in files_below(&root.join("docs/drawings"))? {
        let name = drawing.strip_prefix(root).expect("found below the root");
        write(&into.join(name), &read_bytes(&drawing)?)?;
    }
    let summary = relinked_summary(&summary);
    write(&into.join("SUMMARY.md"), summary.as_bytes())?;
    Ok(pages)
}

/// Rooms that have a page of invariants.
fn rooms(root: &Path) -> Result<Vec<String>, Vec<String>> {
    let pages = files_below(&root.join(INVARIANTS))?;
    let names = pages.iter().filter_map(|page| page.file_stem()?.to_str());
    Ok(names.filter(|name| *name != "README").map(str::to_owned).collect())
}

/// The summary with a line for each room below that of the folder of invariants.
fn with_rooms(summary: &str, rooms: &[String]) -> String {
    let mut result = String::new();
    for line in summary.lines() {
        result += &format!("{line}\n");
        if line.ends_with("(invariants/README.md)") {
            result.extend(rooms.iter().map(|room| format!("  - [{room}](invariants/{room}.md)\n")));
        }
    }
    result
}

/// The name under which a file of the tree lies in the book, and is linked to.
///
/// mdBook makes `index.html` of a README and does not change the links to it. It makes pages of what ends with `.md`, so a page that
/// the summary lacks becomes a text.
fn shown_as(file: &str, is_listed: bool) -> String {
    let Some(bare) = file.strip_suffix(".md") else { return file.to_owned() };
    match (is_listed, bare.strip_suffix("README")) {
        (true, Some(folder)) => format!("{folder}index.md"),
        (true, None) => file.to_owned(),
        (false, _) => format!("{bare}.txt"),
    }
}

/// A page's text with the links that the book needs.
fn relinked(text: &str, folder: &Path, listed: &BTreeSet<&str>) -> String {
    with_links(text, |link| {
        if link.contains("://") {
            return link.to_owned();
        }
        let (file, place) = link.split_once('#').map_or((link, None), |(file, place)| (file, Some(place)));
        let is_listed = listed.contains(plain(&folder.join(file)).as_str());
        // A text has no places.
        let place = place.filter(|_| is_listed || file.is_empty()).map(|place| format!("#{place}"));
        format!("{}{}", shown_as(file, is_listed), place.unwrap_or_default())
    })
}

/// The summary as it must read at the top of the sources: its links from there, not from docs/.
fn relinked_summary(summary: &str) -> String {
    with_links(summary, |link| shown_as(&plain(&Path::new("docs").join(link)), true))
}

/// A text with other links.
fn with_links(text: &str, change: impl Fn(&str) -> String) -> String {
    let mut parts = text.split("](");
    let mut result = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (link, rest) = part.split_once(')').unwrap_or((part, ""));
        result += &format!("]({}){rest}", change(link));
    }
    result
}

/// A path without `.` and `..`.
fn plain(path: &Path) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for component in path.components() {
        match component {
            Component::ParentDir => {
                parts.pop();
            }
            Component::Normal(part) => parts.extend(part.to_str()),
            _ => {}
        }
    }
    parts.join("/")
}

fn run_mdbook(root: &Path, folder: &Path) -> Result<(), Vec<String>> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let own = target.join("tools/bin/mdbook");
    let program = if own.is_file() { own } else { PathBuf::from("mdbook") };
    let version = Command::new(&program).arg("--version").output();
    let version = version.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    if !version.as_ref().is_ok_and(|version| version.starts_with(MDBOOK)) {
        return Err(vec![format!("there is no {MDBOOK}*: run scripts/setup.sh book")]);
    }
    for name in ["book.toml", "book.css"] {
        write(&folder.join(name), &read_bytes(&root.join("docs").join(name))?)?;
    }
    let output = Command::new(&program)
        .arg("build")
        .arg("--dest-dir")
        .arg(folder.join("html"))
        .arg(folder)
        .output()
        .map_err(|error| vec![format!("mdbook cannot run: {error}")])?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    // A warning is a page that is not shown as it was meant, such as a tag that is not closed.
    let complaints: Vec<String> = said
        .lines()
        .filter(|line| line.contains("WARN") || line.contains("ERROR"))
        .map(str::to_owned)
        .collect();
    if output.status.success() && complaints.is_empty() { Ok(()) } else { Err(vec![said]) }
}

/// Links of the HTML that lead to no file, or to no place in it.
fn dead_links(html: &Path) -> Result<Vec<String>, Vec<String>> {
    let mut texts = BTreeMap::new();
    for path in files_below(html)? {
        // The page for wrong addresses has links from the root of a web site.
        let is_page = path.extension().is_some_and(|extension| extension == "html");
        if is_page && !path.ends_with("404.html") {
            let text = read(&path)?;
            texts.insert(path, text);
        }
    }
    let mut problems = Vec::new();
    for (path, text) in &texts {
        let name = path.strip_prefix(html).expect("found below it").display();
        let folder = path.parent().expect("a page is a file");
        let targets: BTreeSet<&str> = values(text, "href").chain(values(text, "src")).collect();
        for target in targets {
            let is_far =
                target.contains("://") || target.starts_with("data:") || target.starts_with("mailto:");
            if is_far || target.is_empty() {
                continue;
            }
            let (file, place) = target.split_once('#').unwrap_or((target, ""));
            let other = if file.is_empty() { path.clone() } else { clean(&folder.join(file)) };
            if !other.is_file() {
                problems.push(format!("book: {name}: the link to {target} leads nowhere"));
            } else if !place.is_empty()
                && texts.get(&other).is_some_and(|other| values(other, "id").all(|id| id != place))
            {
                problems.push(format!("book: {name}: the link to {target} leads to no heading"));
            }
        }
    }
    Ok(problems)
}

/// The values of an attribute in a text of HTML.
fn values<'a>(text: &'a str, attribute: &str) -> impl Iterator<Item = &'a str> {
    let start = format!(" {attribute}=\"");
    let places: Vec<usize> = text.match_indices(&start).map(|(at, found)| at + found.len()).collect();
    places.into_iter().filter_map(|at| text[at..].split_once('"').map(|(value, _)| value))
}

/// A path without `..`, as texts are kept by.
fn clean(path: &Path) -> PathBuf {
    let mut result = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => {
                result.pop();
            }
            Component::CurDir => {}
            other => result.push(other),
        }
    }
    result
}

fn files_below(folder: &Path) -> Result<Vec<PathBuf>, Vec<String>> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let complain = |error: std::io::Error| vec![format!("{}: {error}", folder.display())];
        for entry in std::fs::read_dir(&folder).map_err(complain)? {
            let path = entry.map_err(complain)?.path();
            if path.is_dir() { folders.push(path) } else { files.push(path) }
        }
    }
    files.sort();
    Ok(files)
}

fn read(path: &Path) -> Result<String, Vec<String>> {
    std::fs::read_to_string(path).map_err(|error| vec![format!("{}: {error}", path.display())])
}

fn read_bytes(path: &Path) -> Result<Vec<u8>, Vec<String>> {
    std::fs::read(path).map_err(|error| vec![format!("{}: {error}", path.display())])
}

fn write(path: &Path, content: &[u8]) -> Result<(), Vec<String>> {
    let complain = |error: std::io::Error| vec![format!("{}: {error}", path.display())];
    std::fs::create_dir_all(path.parent().expect("a file lies in a folder")).map_err(complain)?;
    std::fs::write(path, content).map_err(complain)
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_page_that_the_summary_lacks_is_found() {
        let summary = "# Summary\n\n[a](../README.md)\n- [b](b.md)\n  - [c](deep/c.md)\n";
        let files = ["README.md", "docs/SUMMARY.md", "docs/b.md", "docs/deep/c.md", "crates/x/README.md"];
        assert_eq!(unlisted(summary, &files), Vec::<String>::new());
        assert_eq!(
            unlisted(summary, &["docs/deep/d.md"]),
            ["docs/deep/d.md: not in docs/SUMMARY.md, so the book lacks it"]
        );
    }

    #[test]
    fn rooms_stand_below_their_folder() {
        let summary = "- [a](a.md)\n- [Invariants](invariants/README.md)\n- [b](b.md)\n";
        let rooms = ["log".to_owned(), "vssd".to_owned()];
        let expected = "- [a](a.md)\n- [Invariants](invariants/README.md)\n  - [log](invariants/log.md)\n  - [vssd](invariants/vssd.md)\n- [b](b.md)\n";
        assert_eq!(with_rooms(summary, &rooms), expected);
        assert_eq!(unlisted(summary, &["docs/invariants/shard.md"]), Vec::<String>::new());
    }

    #[test]
    fn links_lead_from_the_top_of_the_book() {
        assert_eq!(
            relinked_summary("[a](../README.md)\n- [b](README.md)"),
            "[a](index.md)\n- [b](docs/index.md)"
        );
        let listed = BTreeSet::from(["README.md"]);
        let page = "[a](../README.md#x) [b](../tests/hosts/README.md#y) [c](https://x.y/z.md)";
        let expected = "[a](../index.md#x) [b](../tests/hosts/README.txt) [c](https://x.y/z.md)";
        assert_eq!(relinked(page, Path::new("docs"), &listed), expected);
    }

    #[test]
    fn a_dead_link_of_the_book_is_found() {
        let folder = std::env::temp_dir().join(format!("diecut-book-{}", std::process::id()));
        let page = |name: &str, text: &str| write(&folder.join(name), text.as_bytes()).unwrap();
        page(
            "a.html",
            "<a href=\"b/c.html#here\">x</a> <a href=\"b/c.html#there\">y</a> <img src=\"d.svg\">",
        );
        page("b/c.html", "<h2 id=\"here\">z</h2> <a href=\"../a.html\">a</a> <a href=\"https://x.y\">x</a>");
        let problems = dead_links(&folder).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(
            problems,
            [
                "book: a.html: the link to b/c.html#there leads to no heading",
                "book: a.html: the link to d.svg leads nowhere"
            ]
        );
    }
}
