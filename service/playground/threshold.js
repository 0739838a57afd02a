// The threshold of the model that answered, where its bundle has one: from which card on there is probably no answer.

import { make } from "./dom.js";

/** What /info says of a model; of the default one where it does not know the name. */
const aboutModel = (info, name) => info?.models?.find(({ model }) => model === name) ?? info;

const probabilityOf = ({ relevance_score: score }, activation) => (activation === "identity" ? 1 / (1 + Math.exp(-score)) : score);

/** Whether a result reaches `least`; null where nothing is known of it, since the model has not scored it. */
function reaches(result, least, activation) {
  if (!result.scored_by) return probabilityOf(result, activation) >= least;
  return result.text.trim() ? null : false;
}

/**
 * What the threshold says of results, best first: `least`, the threshold; of each result whether it reaches it (`reached`, null: not known);
 * the place of the `first` that does not, behind some that do; and in words that there is `nothing`, where that is so.
 * Without a threshold, or where the model has scored nothing, it says nothing of any.
 */
export function verdictOf(results, info, name) {
  const { answers, pipeline } = aboutModel(info, name) ?? {};
  const least = answers?.min_score;
  if (typeof least !== "number" || results.every(({ scored_by: by }) => by)) return { least, reached: [] };
  const reached = results.map((result) => reaches(result, least, pipeline?.activation?.name));
  if (reached.includes(true)) return { least, reached, first: reached.indexOf(false) };
  return { least, reached, nothing: reached.includes(null) ? "Nothing that the model has scored answers this." : "Nothing here answers this." };
}

/** The line between what reaches the threshold and what does not. */
export const lineOf = ({ least }) => make("p", { className: "threshold" }, make("span", { textContent: `below ${least.toFixed(3)}: probably no answer` }));

/** That nothing answers; null where something does, or nobody knows. */
export function nothingOf({ least, nothing }) {
  if (!nothing) return null;
  return make("p", { className: "notice nothing" }, make("strong", { textContent: nothing }), ` No score reaches ${least.toFixed(3)}.`);
}
