import{b as t,E as a}from"./ui-CT8jbBbe.js";function r(){return t(a,{title:"usage"})}export{r as default};
