import{b as t,E as a}from"./ui-CT8jbBbe.js";function i(){return t(a,{title:"skills"})}export{i as default};
