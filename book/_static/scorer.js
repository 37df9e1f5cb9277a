// What search shows first: chapters, then guides, then the reference.
const CHAPTER = 20;
const REFERENCE = -20;

var Scorer = {
  score: ([page, , , , score]) => score + (page.startsWith("chapters/") ? CHAPTER : page === "api" ? REFERENCE : 0),
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: -20, 1: -20, 2: -20 },
  objPrioDefault: -20,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
